"""Safe files and folders: claimed by one process at a time, written atomically, and verified when read."""

"""Files and folders that are never harmed: claimed by one process, written whole or not at all, verified."""

"""Reading and checking rows from files and datasets, and splitting off held-out prompts."""

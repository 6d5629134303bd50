"""``ppolm report``."""

"""Attacks on ppolm that anybody can repeat: ``make attack``, or ``python -m attack PART ...``."""

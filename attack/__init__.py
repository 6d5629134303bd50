"""Attacks on ppolm that anybody can repeat: ``make attack``. What they find is in docs/reliability.md."""

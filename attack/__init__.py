"""Repeatable attacks on ppolm: ``make attack``. Their findings are in docs/reliability.md."""

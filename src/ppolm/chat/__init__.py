"""Talking to a policy and its reference."""

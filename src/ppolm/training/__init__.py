"""Losses and update rules: pure functions, and the optimiser step that uses them."""

"""Prompts from files and datasets, and token sequences in microbatches."""

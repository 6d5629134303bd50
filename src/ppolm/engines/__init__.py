"""Sampling outside of this process's model: the same prompts in, the same kind of responses out."""

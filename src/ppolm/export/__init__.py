"""A trained policy as files that other programs load: merged weights, an adapter, GGUF, and the Hub."""

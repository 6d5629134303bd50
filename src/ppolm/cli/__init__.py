"""The ``ppolm`` command."""

"""A run is a folder: what is in it, and how it is written so that nothing is ever half there."""

"""Token sequences, and how they are put into microbatches."""

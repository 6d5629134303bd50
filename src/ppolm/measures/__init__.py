"""Statistics of texts and of samples of numbers: words, intervals. No torch."""

"""Numbers about texts and samples of numbers: words, intervals, rank statistics. No torch."""

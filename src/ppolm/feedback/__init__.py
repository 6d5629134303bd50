"""The feedback store: people's comparisons, scores and thumbs, in SQLite or PostgreSQL."""

"""The feedback store: comparisons, scores and thumbs of people, in SQLite or PostgreSQL."""

"""Programs that attack ppolm: what they find is in docs/reliability.md, a short form of each is in the tests."""

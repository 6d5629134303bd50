"""What responses are sampled with: the policy itself, or another library that runs a copy of it."""

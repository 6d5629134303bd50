"""What responses are sampled with: the policy itself, another library that runs a copy of it, or servers."""

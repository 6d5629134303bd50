"""Evaluation on held-out prompts: is the policy improving, converged or collapsed? Its pure parts load no torch."""

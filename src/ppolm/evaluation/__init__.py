"""Is the policy getting better, has it stopped, or has it collapsed? Its pure parts load no torch."""

"""How tensors are multiplied, attended to and reduced: tensors in, tensors out. No other room is imported here."""

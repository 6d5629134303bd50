"""Matrix products, attention and reductions: tensors in, tensors out. Nothing is imported from other rooms."""

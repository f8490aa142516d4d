"""Learning: from examples and labels to weights (Algorithm 3 of the paper, and what a fit is made of)."""

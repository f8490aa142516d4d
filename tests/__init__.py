"""One conformance suite for all structures, the claims of the paper, bad input, reproducibility."""

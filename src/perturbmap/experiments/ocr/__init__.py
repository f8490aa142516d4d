"""Table 2 of the paper: handwritten words."""

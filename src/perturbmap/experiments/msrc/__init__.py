"""MSRC: photos cut into twenty-one classes, which the paper does not have."""

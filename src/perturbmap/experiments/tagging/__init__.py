"""Parts of speech of words in sentences: taggers with sparse, named features, which the paper does not have."""

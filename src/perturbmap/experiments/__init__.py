"""The paper's experiments and MSRC, one folder each, and what they share: results, reports, visual words."""

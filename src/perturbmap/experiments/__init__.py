"""The paper's experiments, one folder each, and the results and reports that they share."""

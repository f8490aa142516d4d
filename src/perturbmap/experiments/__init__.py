"""The paper's experiments, one module each, and the results and reports that they share."""

"""Random instances, damaged files and damaged folders, until something breaks: ``make fuzz``; and ``make soak``."""

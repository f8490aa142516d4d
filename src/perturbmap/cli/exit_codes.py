"""What a command returns beside 0, all well, and 2, wrong usage (click's own)."""

EXIT_ERROR = 1
EXIT_INTERRUPTED = 130

"""What every layer stands on: checks of arguments, parameters of parts, files, threads, progress."""

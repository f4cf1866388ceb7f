"""What a run shows while under way: metrics to loggers, progress to the terminal; the only code that knows W&B."""

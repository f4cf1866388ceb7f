"""What a run leaves behind: summary.json, figures, metrics, tables; the only code that knows W&B."""

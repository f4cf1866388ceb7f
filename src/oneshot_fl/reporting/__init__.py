"""What a run leaves behind: summary.json, pictures, metrics, tables; the only code that knows W&B."""

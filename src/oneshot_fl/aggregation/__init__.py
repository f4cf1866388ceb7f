"""Other people's uploads to one model: read, checked, aligned, served by the pipeline's server half, reported."""

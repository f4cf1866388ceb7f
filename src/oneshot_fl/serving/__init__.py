"""The global model in use: loaded by what its file says of itself, asked for classes, exported for other programs."""

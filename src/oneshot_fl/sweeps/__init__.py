"""A sweep as it lies on disk: which jobs it has, how each stands, and what is said of it. Knows no Hydra."""

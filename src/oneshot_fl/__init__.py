"""One-shot federated learning: every client uploads its model once, the server makes one good model of them."""

__version__ = "0.1.0"

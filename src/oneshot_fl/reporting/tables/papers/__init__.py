"""The papers' printed numbers, what they state of how they ran, and our runs beside them."""

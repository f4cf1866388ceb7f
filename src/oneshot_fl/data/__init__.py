"""Data sets, partitions and batches, all as tensors in memory."""

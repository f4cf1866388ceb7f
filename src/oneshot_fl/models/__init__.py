"""Classifiers, generators, and the bank that runs m frozen clients behind one call."""

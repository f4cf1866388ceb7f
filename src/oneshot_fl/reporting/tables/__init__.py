"""Tables over many runs: our own, and the papers' with their numbers beside ours."""

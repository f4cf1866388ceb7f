"""Phase 1, local training: what each kind of client trains and uploads."""

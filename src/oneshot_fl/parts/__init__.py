"""What two or more papers share, as pure torch: no lightning, no hydra, no wandb."""

"""Jobs of a sweep side by side: on cores and GPUs of this machine, on Slurm, on Ray. One engine a module."""

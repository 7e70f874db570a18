"""Training runs: configuration, run folder, checkpoints, training loop and evaluation."""

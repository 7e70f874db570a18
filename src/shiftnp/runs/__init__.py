"""Training runs: what one is made with, its folder, the training loop and the evaluation."""

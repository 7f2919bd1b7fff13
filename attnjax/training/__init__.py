"""The training step, its state and the loop around it."""

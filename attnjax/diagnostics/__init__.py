"""Pictures of attention and of training."""

"""A task is loss, metrics and evaluation for one kind of problem."""

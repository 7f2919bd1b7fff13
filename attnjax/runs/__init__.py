"""What can be done with the folder of a trained run; each module is one such thing."""

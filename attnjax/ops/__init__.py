"""The mathematics of attention: pure functions on arrays."""

"""Linen modules that own parameters and call ops."""

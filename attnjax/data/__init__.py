"""Sentence pairs to numpy batches."""

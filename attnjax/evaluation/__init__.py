"""Scores of translations: BLEU, chrF, by length."""

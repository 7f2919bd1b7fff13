"""One paper family per file: assembly of layers."""

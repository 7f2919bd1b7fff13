"""Translation sets of tensorflow-datasets, read without TensorFlow."""

from __future__ import annotations

from attnjax.config import TFDSSource
from attnjax.data.parallel import ParallelCorpus


def load_tfds(
    config: TFDSSource, source_language: str, target_language: str
) -> tuple[ParallelCorpus, ParallelCorpus, ParallelCorpus]:
    """Reads the three splits."""
    raise ValueError("tensorflow-datasets sets cannot be read yet.")

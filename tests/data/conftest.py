"""Small corpora and tokenizers."""

import pytest

from attnjax.config import CLDRSource, DataConfig, TokenizerConfig
from attnjax.data.parallel import ParallelCorpus
from attnjax.data.tokenizers import train_tokenizers


def numbered_corpus(count, origin="numbered"):
    """Pair i says i, with 0 to 10 further words on each side."""
    source = [f"n{i} " + "a " * (i * 7 % 11) for i in range(count)]
    target = [f"n{i} " + "b " * (i * 5 % 11) for i in range(count)]
    return ParallelCorpus(source, target, origin)


@pytest.fixture(scope="session")
def corpus():
    return numbered_corpus(97)


@pytest.fixture(scope="session")
def make_corpus():
    return numbered_corpus


@pytest.fixture(scope="session")
def tokenizers(corpus):
    return train_tokenizers(corpus, TokenizerConfig(kind="word", vocab_size=500))


@pytest.fixture(scope="session")
def make_config():
    """A config of few short shapes; keywords replace fields."""

    def make(**fields):
        settings = {
            "source": CLDRSource(),
            "bucket_lengths": (5, 8, 13),
            "bucket_shapes": 4,
            "tokens_per_batch": 52,
            "rows_multiple": 2,
            "shuffle_buffer_batches": 5,
        }
        return DataConfig(**settings | fields)

    return make

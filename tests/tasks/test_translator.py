"""What the translator reports, with tiny untrained models of every family."""

import functools

import jax
import numpy as np
import pytest

from attnjax.config import (
    DecodingConfig,
    RNNConfig,
    TokenizerConfig,
    TransformerConfig,
)
from attnjax.data.parallel import ParallelCorpus
from attnjax.data.tokenizers import train_tokenizers
from attnjax.decoding.hypotheses import SpecialTokens
from attnjax.evaluation.minimum_risk import expected_utilities
from attnjax.models.ensemble import Ensemble, ensemble_variables
from attnjax.models.rnn import RNNSeq2Seq
from attnjax.models.transformer import Transformer
from attnjax.ops.selection import SELECTIONS
from attnjax.tasks.outputs import Hypothesis, Translations
from attnjax.tasks.searching import SearchInputs, search_batch
from attnjax.tasks.translator import Translator, _place
from attnjax.types import Tokens

LINES = ["ein Hund", "eine rote Katze", "lang", "der Fluss ist sehr lang", ""]
CORPUS = ParallelCorpus(LINES, ["a dog", "a red cat", "long", "it is long", ""], "here")
TOKENIZERS = train_tokenizers(CORPUS, TokenizerConfig(kind="char", vocab_size=40))
EOS = TOKENIZERS.target.eos_id
LIKED = {"output_embedding": 18, "target_embedding": 17}  # tokens, by what scores them
SPECIAL = SpecialTokens(TOKENIZERS.target.pad_id, TOKENIZERS.target.bos_id, EOS)
BASE = DecodingConfig(
    beam_size=3,
    n_best=2,  # all hypotheses of all lines are one batch of pairs
    max_extra_tokens=3,
    max_source_tokens=40,
    tokens_per_batch=128,
)
SIZES = TOKENIZERS.source.size, TOKENIZERS.target.size
MODELS = {
    "transformer": Transformer(
        TransformerConfig(
            width=16,
            num_heads=2,
            feed_forward_width=24,
            encoder_layers=1,
            decoder_layers=2,
        ),
        *SIZES,
    ),
    "rnn": RNNSeq2Seq(
        RNNConfig(embedding_width=12, hidden_width=14, attention_width=8), *SIZES
    ),
}


def random_variables(model, seed=0):
    """Random ones of a model that often ends: ``</s>`` is much like another token."""
    example = Tokens(np.ones((1, 2), np.int32), np.ones((1, 2), bool))
    shapes = jax.eval_shape(
        lambda: model.init(jax.random.key(0), example, example, train=False)
    )
    random = np.random.default_rng(seed)
    variables = jax.tree.map(
        lambda leaf: random.normal(size=leaf.shape, scale=0.6).astype(leaf.dtype),
        shapes,
    )
    name = min(LIKED.keys() & variables["params"].keys())
    table = variables["params"][name]["table"]
    table[EOS] = 0.9 * table[LIKED[name]]
    return variables


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    return MODELS[request.param]


@pytest.fixture(scope="module")
def variables(model):
    return random_variables(model)


@functools.cache  # and with it its programs
def translator_of(model, **changes):
    return Translator(model, TOKENIZERS, BASE.searching(**changes), "en")


@pytest.fixture(
    scope="module",
    params=[
        {"length_penalty_kind": "plain", "length_penalty": 1.0, "min_tokens": 7},
        {"coverage_penalty": 0.4},
        {"method": "sampling", "top_k": 6},
        {"beam_size": 1, "n_best": 1, "no_repeat_ngram": 2, "coverage_penalty": 0.4},
    ],
    ids=["plain", "coverage", "sampling", "greedy"],
)
def searched(request, model, variables):
    translator = translator_of(model, **request.param)
    return translator, translator.translate(variables, LINES, with_attention=True)


def flat(searched):
    """Every hypothesis with its line."""
    return [
        (line, hypothesis)
        for line, hypotheses in zip(LINES, searched[1].n_best, strict=True)
        for hypothesis in hypotheses
        if hypothesis.ids
    ]


def test_scoring_the_output_gives_the_reported_score(searched, variables):
    translator, _ = searched
    lines, hypotheses = zip(*flat(searched), strict=True)
    forced = translator.score(variables, lines, [each.ids for each in hypotheses])
    is_beam = translator.config.method == "beam"
    for score, hypothesis in zip(forced, hypotheses, strict=True):
        assert len(score.token_log_probabilities) == len(hypothesis.ids)
        np.testing.assert_allclose(
            score.log_probability, hypothesis.log_probability, rtol=1e-4
        )
        expected = score.score if is_beam else score.log_probability
        np.testing.assert_allclose(expected, hypothesis.score, rtol=1e-4)


def test_the_attention_of_the_search_is_that_of_forced_decoding(searched, variables):
    translator, _ = searched
    lines, hypotheses = zip(*flat(searched), strict=True)
    forced = translator.attention(variables, lines, [each.ids for each in hypotheses])
    for named, hypothesis in zip(forced, hypotheses, strict=True):
        last = list(named.values())[-1].mean(0)
        np.testing.assert_allclose(
            hypothesis.attention, last[: len(hypothesis.ids)], atol=1e-5
        )


def test_attention_everywhere_is_that_of_the_model_over_the_lines_own_tokens():
    model = MODELS["transformer"]
    variables, translator = random_variables(model), translator_of(model)
    ids = translator.encode_targets(["a dog", "red"])
    found = translator.attention_everywhere(variables, LINES[:2], ids)
    cross = translator.attention(variables, LINES[:2], ids)
    for line, tokens, named, over_source in zip(
        *(LINES[:2], ids, found, cross), strict=True
    ):
        assert list(named) == [
            *("encoder/layer_0/self", "decoder/layer_0/self", "decoder/layer_1/self"),
            *("decoder/layer_0/cross", "decoder/layer_1/cross"),
        ]
        sizes = {"source": len(line) + 1, "target": len(tokens)}
        for name, (weights, queries, keys) in named.items():
            assert weights.shape == (2, sizes[queries], sizes[keys]), name
            np.testing.assert_allclose(weights.sum(-1), 1.0, rtol=1e-5)
        assert named["encoder/layer_0/self"][1:] == ("source", "source")
        assert not np.triu(named["decoder/layer_1/self"].weights, 1).any()
        for name, weights in over_source.items():
            np.testing.assert_allclose(named[name].weights, weights, rtol=1e-5)
    source = [*TOKENIZERS.source.encode(LINES[1]), EOS]
    tokens = Tokens(np.array([source], np.int32), np.ones((1, len(source)), bool))
    encoded = model.apply(variables, tokens, train=False, method="encode")
    np.testing.assert_allclose(
        found[1]["encoder/layer_0/self"].weights,
        encoded.attention["encoder/layer_0/self"][0],
        rtol=1e-4,
    )


def test_layers_come_in_the_order_of_their_numbers():
    names = ["member_0/layer_10/cross", "member_0/layer_2/cross", "layer_1/cross"]
    assert sorted(names, key=_place) == names[::-1]


def test_outputs_are_sorted_and_end_once(searched):
    translator, found = searched
    order = translator.config.no_repeat_ngram
    assert found.n_best[-1] == [Hypothesis()]
    assert any(each.finished for _, each in flat(searched))
    for hypotheses in found.n_best[:-1]:
        assert 0 < len(hypotheses) <= translator.config.n_best
        ended = [each.finished for each in hypotheses]
        assert ended == sorted(ended, reverse=True)
        for wanted in (True, False):
            scores = [each.score for each in hypotheses if each.finished is wanted]
            assert scores == sorted(scores, reverse=True)
        for each in hypotheses:
            assert each.ids.count(EOS) == each.finished
            assert not each.finished or each.ids[-1] == EOS
            assert len(each.ids) >= translator.config.min_tokens
            if order:
                grams = list(zip(*(each.ids[i:] for i in range(order)), strict=False))
                assert len(grams) == len(set(grams))
            assert "<pad>" not in each.text
            assert "<s>" not in each.text


def test_nothing_depends_on_the_batch_or_the_order(searched, variables):
    translator, found = searched
    backwards = translator.translate(variables, LINES[::-1], with_attention=True)
    alone = translator.translate(variables, LINES[1:2])
    assert [each.ids for each in backwards.n_best[3]] == [
        each.ids for each in found.n_best[1]
    ]
    assert [each.ids for each in alone.n_best[0]] == [
        each.ids for each in found.n_best[1]
    ]


def test_the_best_is_the_same_for_every_n_best(model, variables):
    every = translator_of(model).translate(variables, LINES)
    single = translator_of(model, n_best=1).translate(variables, LINES)
    assert every.ids == single.ids


def test_outputs_begin_with_their_prefix(model, variables):
    # An empty line comes first, and one prefix is longer than its line's output may be.
    lines = ["", *LINES[:4]]
    prefixes = ["x", "a d", "", "it is a red dog", "it"]
    found = translator_of(model).translate(variables, lines, prefixes=prefixes)
    assert found.texts[0] == ""
    for prefix, hypotheses in zip(prefixes[1:], found.n_best[1:], strict=True):
        for hypothesis in hypotheses:
            assert hypothesis.text.startswith(prefix)
    free = translator_of(model).translate(variables, lines)
    assert found.ids[2] == free.ids[2]
    with pytest.raises(ValueError, match="got 1 prefixes for 5 lines"):
        translator_of(model).translate(variables, LINES, prefixes=["a"])


def test_least_risk_is_the_most_alike_of_the_samples(model, variables):
    # The utility is read when the search is over: it knows no model.
    utility = "bleu" if model is MODELS["rnn"] else "chrf"
    # Sure enough that some samples are drawn twice.
    settings = {"temperature": 0.4, "top_k": 6}
    samples = translator_of(model, method="sampling", n_best=12, **settings)
    drawn = samples.translate(variables, LINES)
    settings |= {"risk_utility": utility, "num_samples": 12}
    chosen = translator_of(model, method="mbr", n_best=2, **settings)
    n_best = chosen.translate(variables, LINES).n_best
    distinct = [len({each.text for each in row}) for row in drawn.n_best[:-1]]
    assert min(distinct) < 12
    assert max(distinct) > 2
    for hypotheses, candidates in zip(n_best[:-1], drawn.n_best[:-1], strict=True):
        texts = list(dict.fromkeys(candidate.text for candidate in candidates))
        likeness = expected_utilities(
            texts,
            [sum(each.text == text for each in candidates) for text in texts],
            utility=utility,
            target_language="en",
        )
        expected = dict(zip(texts, likeness, strict=True))
        assert [each.score for each in hypotheses] == pytest.approx(
            sorted(expected.values(), reverse=True)[:2]
        )
        for each in hypotheses:
            assert each.score == pytest.approx(expected[each.text])


def test_of_samples_with_one_text_the_most_probable_is_kept():
    samples = [
        Hypothesis(text=text, ids=[number], log_probability=-float(number))
        for number, text in enumerate(["a dog", "a cat", "a dog"], start=1)
    ]
    kept = translator_of(MODELS["rnn"], method="mbr")._least_risk(samples)
    assert [each.ids for each in kept] == [[1], [2]]


@pytest.mark.parametrize(
    "fields",
    [{"top_k": 1}, {"top_k": 0, "top_p": 1e-6}, {"top_k": 0, "temperature": 1e-4}],
    ids=lambda fields: [*fields][-1],
)
def test_samples_of_the_most_probable_tokens_are_greedy(fields):
    model = MODELS["rnn"]
    variables = random_variables(model)
    greedy = translator_of(model, beam_size=1, n_best=1).translate(variables, LINES)
    sure = translator_of(model, method="sampling", n_best=2, **fields)
    for hypotheses, ids in zip(
        sure.translate(variables, LINES).n_best[:-1], greedy.ids[:-1], strict=True
    ):
        assert [each.ids for each in hypotheses] == [ids, ids]


def test_rows_of_filler_stay_empty():
    model = MODELS["rnn"]
    end = TOKENIZERS.source.eos_id
    ids = np.array([[5, 6, 7, end], [end, 0, 0, 0]], np.int32)
    search = functools.partial(search_batch, model, SPECIAL, BASE, with_attention=False)
    found = jax.jit(search)(
        random_variables(model),
        SearchInputs(
            Tokens(ids, np.array([[1, 1, 1, 1], [1, 0, 0, 0]], bool)),
            np.zeros(2, np.uint32),
        ),
    )
    assert (np.asarray(found.lengths) > 0).tolist() == [[True] * 2, [False] * 2]


def test_totals_are_those_of_the_best():
    short = Hypothesis(text="a long text", ids=[5, 6, 7, EOS])
    cut = Hypothesis(text="a", ids=[5], finished=False)
    found = Translations(
        n_best=[[short, cut], [cut, short, short], [Hypothesis()]],
        num_cut=0,
        seconds=1.0,
    )
    assert found.texts == ["a long text", "a", ""]
    assert (found.num_tokens, found.num_unfinished) == (5, 1)


def test_an_ensemble_of_a_model_with_itself_is_the_model(model, variables):
    twins = Ensemble((model, model))
    both = ensemble_variables([variables, variables])
    alone = translator_of(model).translate(variables, LINES)
    found = translator_of(twins).translate(both, LINES)
    assert found.ids == alone.ids
    for ours, theirs in zip(found.best, alone.best, strict=True):
        np.testing.assert_allclose(ours.score, theirs.score, rtol=1e-4)


def test_an_ensemble_has_the_mean_probability_of_its_members():
    models = tuple(MODELS.values())
    members = [random_variables(each, seed) for seed, each in enumerate(models, 1)]
    ids = translator_of(models[0]).encode_targets(["a dog", "a red cat"])

    def probabilities(model, variables):
        scores = translator_of(model).score(variables, LINES[:2], ids)
        return [np.exp(score.token_log_probabilities) for score in scores]

    apart = [probabilities(*each) for each in zip(models, members, strict=True)]
    ensemble = Ensemble(models)
    joint = probabilities(ensemble, ensemble_variables(members))
    for number in range(2):
        mean = (apart[0][number] + apart[1][number]) / 2
        np.testing.assert_allclose(joint[number], mean, rtol=1e-4)
    example = Tokens(np.ones((1, 2), np.int32), np.ones((1, 2), bool))
    decoded = jax.eval_shape(
        lambda: ensemble.apply(
            ensemble_variables(members), example, example, train=False
        )
    )
    names = ["layer_0/cross", "layer_1/cross"]
    assert sorted(name for name in decoded.attention if name.endswith("cross")) == [
        *(f"member_0/decoder/{name}" for name in names),
        "member_1/decoder/cross",
    ]


def test_a_model_without_attention_refuses_a_coverage_penalty():
    model = RNNSeq2Seq(
        RNNConfig(embedding_width=12, hidden_width=14, attention="none"), *SIZES
    )
    variables = random_variables(model)
    with pytest.raises(ValueError, match="forms no attention weights"):
        translator_of(model, coverage_penalty=0.2).translate(variables, LINES)
    assert translator_of(model).translate(variables, LINES[:1]).texts


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"n_best": 4}, "n_best must be at most beam_size"),
        ({"method": "mbr", "n_best": 33}, "n_best must be at most num_samples"),
        ({"coverage_penalty": -1.0}, "coverage_penalty must be 0 or more"),
        ({"method": "sampling", "top_p": 2.0}, "top_p must be"),
        ({"method": "sampling", "temperature": 0.0}, "temperature must"),
        ({"temperature": 2.0}, "temperature cannot be set where method is beam"),
        ({"bem_size": 2}, "bem_size cannot be set"),
        ({"method": "mcmc"}, "method must be one of beam, sampling, mbr, got 'mcmc'"),
    ],
)
def test_impossible_configs_are_refused(fields, named):
    with pytest.raises(ValueError, match=named):
        BASE.searching(**fields)


@pytest.mark.parametrize("kind", ["top_k", "local_m", "local_p", "hard", "gumbel"])
def test_every_selection_of_keys_can_be_searched(kind):
    selection = SELECTIONS.fill(kind, {"window": 2, "top_k": 2})
    model = RNNSeq2Seq(
        RNNConfig(
            embedding_width=12, hidden_width=14, attention_width=8, selection=selection
        ),
        *SIZES,
    )
    variables = random_variables(model)
    translator = translator_of(model, n_best=2, coverage_penalty=0.2)
    found = translator.translate(variables, LINES[:2], with_attention=True)
    (hypotheses, _) = found.n_best
    ids = [hypothesis.ids for hypothesis in hypotheses]
    forced = translator.score(variables, LINES[:1] * len(ids), ids)
    for score, hypothesis in zip(forced, hypotheses, strict=True):
        np.testing.assert_allclose(score.score, hypothesis.score, rtol=1e-4)
        totals = hypothesis.attention.sum(-1)  # below 1 under local-p's Gaussian
        assert (totals < 1.0001).all()
        assert kind == "local_p" or (totals > 0.9999).all()

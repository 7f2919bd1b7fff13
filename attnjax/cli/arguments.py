"""The subcommands and their arguments."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from attnjax import __version__
from attnjax.cli import listing, training, using
from attnjax.cli.launch import add_launch_options, chosen_launch
from attnjax.cli.run_options import FORCING, SCORING, SEARCHING_ONE, add_run_options
from attnjax.cli.supervisor import supervise
from attnjax.terminal import printable, visible_output


def run(arguments: list[str]) -> int:
    """Parses the command line and calls the subcommand.

    Args:
        arguments: without the program's name.

    Returns:
        The exit code.
    """
    parser = _parser()
    options, overrides = parser.parse_known_args(arguments)
    if options.command == "train":
        if options.dry_run and options.from_step is not None:
            parser.error("--dry-run begins nothing, so nobody reads --from-step")
        launch = chosen_launch(options)
        if launch is not None and not options.supervised:
            return supervise(arguments, launch)
        dry_run = options.dry_run
        return training.train(
            options.config,
            overrides,
            dry_run=dry_run,
            launch=launch,
            from_step=options.from_step,
        )
    if options.command == "bench":
        return listing.bench(overrides)
    if overrides:
        parser.error(f"unrecognized arguments: {' '.join(overrides)}")
    _require_read(parser, options)
    chosen: Callable[[argparse.Namespace], int] = options.function
    with visible_output():
        return chosen(options)


def _require_read(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Refuses options that nobody reads without, or beside, another one."""
    for name, others in options.needs.items():
        if getattr(options, name) is not None and not any(
            getattr(options, other) for other in others
        ):
            needed = " or ".join(map(_flag, others))
            parser.error(
                f"nobody reads {_flag(name)} without {needed}; give both, or none"
            )
    for name, others in options.replaces.items():
        unread = [_flag(each) for each in others if getattr(options, each) is not None]
        if getattr(options, name) is not None and unread:
            parser.error(
                f"nobody reads {', '.join(unread)} beside {_flag(name)}; leave one or "
                "the other out"
            )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


class _Parser(argparse.ArgumentParser):
    """Its subcommands are of this class too."""

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Ends the process; a message may repeat an argument."""
        super().exit(status, message and printable(message))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="attnjax", description="Attention in sequence models, in JAX and Flax."
    )
    parser.add_argument("--version", action="version", version=f"attnjax {__version__}")
    # Which options are read only beside another one, and which only without it.
    parser.set_defaults(needs={}, replaces={})
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    train = commands.add_parser("train", add_help=False, help="train from a config")
    train.add_argument("--config")
    train.add_argument("--dry-run", action="store_true")
    train.add_argument("--from-step", type=int)
    add_launch_options(train)
    for add in (_evaluate, _translate, _score, _align, _draw, _compare, _average):
        add(commands)
    _list(commands)
    bench = commands.add_parser("bench", help="measure time and memory")
    what = bench.add_subparsers(dest="what", required=True, metavar="WHAT")
    what.add_parser(
        "attention", add_help=False, help="every mechanism at several lengths"
    )
    return parser


def _evaluate(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser(
        "evaluate",
        help="score a run folder's test set",
        description="Translates a set of the experiment and scores it: tables on a "
        "terminal, one JSON line elsewhere; translations, pictures and a page in the "
        "run folder.",
    )
    parser.add_argument("--split", choices=["test", "valid"], default="test")
    parser.add_argument(
        "--pictures", type=int, default=3, help="sentences whose attention is drawn"
    )
    _add_picture_options(parser)
    parser.add_argument(
        "--format", choices=["png", "svg"], help="of the pictures (default: png)"
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object, as into a pipe, instead of tables",
    )
    add_run_options(parser, SEARCHING_ONE)
    drawing = ("layer", "head", "whole_words", "format")
    needs = dict.fromkeys(drawing, ("pictures",))
    parser.set_defaults(function=using.evaluate, needs=needs)


def _translate(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser(
        "translate",
        help="translate lines of text",
        description="One line in, one line out, in order; what arrives on standard "
        "input is translated as it comes, and a terminal gets a prompt. With --n-best, "
        "--scores or --alignments a line has columns parted by tabs: its number (with "
        "--n-best), the text, score and log-probability, links.",
    )
    parser.add_argument(
        "file", nargs="?", type=Path, help="text to translate; standard input if none"
    )
    parser.add_argument(
        "--prefixes",
        type=Path,
        help="file of what each translation begins with, to the letter; a line each",
    )
    parser.add_argument(
        "--scores", action="store_true", help="print score and log-probability"
    )
    parser.add_argument(
        "--alignments",
        action="store_true",
        help="print links of words as SOURCE-TARGET, from 0",
    )
    parser.add_argument(
        "--json", action="store_true", help="one JSON object a line, with everything"
    )
    parser.add_argument(
        "--attention",
        action="store_const",
        const=True,
        help="with --json: the attention of the search, heads of the last layer "
        "averaged",
    )
    _add_reading_options(parser)
    add_run_options(parser)
    read_by_links = "reading", "threshold", "validation", "words"
    needs = dict.fromkeys(read_by_links, ("alignments",))
    needs |= {"attention": ("json",), "gold_base": ("validation",)}
    parser.set_defaults(function=using.translate, needs=needs)


def _score(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser(
        "score",
        help="log-probabilities of given translations",
        description="Prints for each pair of lines its score (as search ranks), its "
        "log-probability in nats and its number of tokens, parted by tabs.",
    )
    _add_pair(parser)
    parser.add_argument(
        "--json", action="store_true", help="one JSON object a line, token by token"
    )
    add_run_options(parser, SCORING)
    parser.set_defaults(function=using.score)


def _align(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser(
        "align",
        help="align the words of given pairs",
        description="Prints for each pair of lines its links as SOURCE-TARGET, words "
        "counted from 0. Layer and head are those with the lowest alignment error on a "
        "validation set with known links.",
    )
    _add_pair(parser)
    _add_reading_options(parser)
    parser.add_argument("--soft", type=Path, help="write the weights to this .npz file")
    parser.add_argument(
        "--reverse", type=Path, help="run folder of the opposite direction"
    )
    parser.add_argument(
        "--symmetrize",
        choices=[
            *("intersection", "union", "grow-diag", "grow-diag-final"),
            "grow-diag-final-and",
        ],
        help="how to join both directions (default: grow-diag-final-and)",
    )
    parser.add_argument(
        "--gold", type=Path, help="known links; prints the alignment error on stderr"
    )
    parser.add_argument(
        "--gold-format",
        choices=["pharaoh", "naacl"],
        help="of the known links (default: pharaoh)",
    )
    add_run_options(parser, FORCING)
    needs = {
        "symmetrize": ["reverse"],
        "gold_format": ["gold"],
        "gold_base": ["gold", "validation"],
    }
    parser.set_defaults(function=using.align, needs=needs)


def _draw(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser(
        "draw",
        help="draw where the model looks in a sentence",
        description="Draws the attention of one layer, a panel for each head, while "
        "the model reads a sentence and writes its translation.",
    )
    parser.add_argument("sentence", help="one source sentence")
    parser.add_argument(
        "--target", help="translation to read (default: the model's own)"
    )
    _add_picture_options(parser)
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("attention.png"),
        help="file to write, .png or .svg (default: %(default)s)",
    )
    add_run_options(parser, SEARCHING_ONE)
    searching = [name for name in SEARCHING_ONE if name not in FORCING]
    parser.set_defaults(function=using.draw, replaces={"target": searching})


def _compare(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser(
        "compare",
        help="score outputs, and test their difference",
        description="BLEU and chrF of each output with 95 % intervals, p-values of "
        "the differences (paired bootstrap), BLEU by length, speed and search, and the "
        "spread over seeds. A single output is scored in all usual ways.",
    )
    parser.add_argument(
        "systems",
        nargs="+",
        type=Path,
        help="files of translations, run folders once evaluated, or reports in them "
        "(evaluation/test.1.json)",
    )
    parser.add_argument(
        "--references", nargs="+", type=Path, default=[], help="one or several files"
    )
    parser.add_argument(
        "--language",
        help="of the references, chooses the tokenizer of BLEU (default: as in the run "
        "folder, or the ending of a file)",
    )
    parser.add_argument(
        "--split", choices=["test", "valid"], help="of run folders (default: test)"
    )
    parser.add_argument(
        "--resamples",
        type=int,
        default=1_000,
        help="test sets that are drawn for intervals and p-values (default: 1000)",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--format",
        choices=["text", "markdown", "latex", "csv"],
        help="of the tables (default: text)",
    )
    form.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(function=using.compare)


def _average(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser(
        "average",
        help="average checkpoints",
        description="Stores the mean of several checkpoints; use it by "
        "--checkpoint averaged.",
    )
    parser.add_argument("--workdir", type=Path, required=True, help="the run folder")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--last", type=int, metavar="N", help="of the latest N")
    which.add_argument("--best", type=int, metavar="N", help="of the N best scored")
    parser.add_argument("--name", help="default: last-N or best-N")
    parser.set_defaults(function=using.average)


def _list(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser("mechanisms", help="list the attention mechanisms")
    parser.add_argument(
        "--markdown", action="store_true", help="as the page docs/mechanisms.md"
    )
    parser.set_defaults(function=listing.mechanisms)


def _add_picture_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--layer",
        help="attention to draw, such as encoder/layer_0/self (default: the last "
        "layer's over the source)",
    )
    parser.add_argument(
        "--head",
        type=_head,
        metavar="{NUMBER,mean}",
        help="head to draw, from 0, or their mean (default: all)",
    )
    parser.add_argument(
        "--whole-words",
        action="store_true",
        default=None,
        help="draw words in place of subwords",
    )


def _head(text: str) -> int | str:
    if text != "mean" and not text.isdecimal():
        raise argparse.ArgumentTypeError(f"a head is a number or mean, got {text!r}")
    return text if text == "mean" else int(text)


def _add_pair(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=Path, help="file of source lines")
    parser.add_argument("target", type=Path, help="file of as many translations")


def _add_reading_options(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--reading",
        metavar="NAME[:HEAD][:shifted]",
        help="which attention to read, such as decoder/layer_2/cross:3:shifted",
    )
    parser.add_argument(
        "--threshold",
        type=float,
        metavar="WEIGHT",
        help="link all words of at least this weight (default: the largest one)",
    )
    which.add_argument(
        "--validation",
        nargs=3,
        type=Path,
        metavar=("SOURCE", "TARGET", "LINKS"),
        help="files to choose the reading by (default: the run's validation set)",
    )
    parser.add_argument(
        "--gold-base",
        type=int,
        choices=[0, 1],
        help="number of the first word in Pharaoh files that are read (default: 0)",
    )
    parser.add_argument(
        "--words",
        choices=["language", "spaces"],
        help="what is linked in Chinese, Japanese, Thai and the like: words as the "
        "language has them (default), or what spaces part in tokenised files",
    )

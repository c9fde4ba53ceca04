"""`reproduce explain`: why a measured iteration takes as long as it does. Imports no torch."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ptdp_core.config import TrainingConfig
from ptdp_core.simulator import Cluster
from reproduce.annex import part
from reproduce.annex.explain.explanation import MOST_PLAYERS, Explanation, Gap, explain, split_gap, utilization
from reproduce.annex.explain.throughput_lines import LOGS, Measurement, read_lines
from reproduce.commands import options
from reproduce.commands.simulate import read_point
from reproduce.experiment.sweep import KEYS
from results import opening
from results.records.errors import DONE, UsageError

SHOWN = 10
FIELDS = KEYS
HELP = f"""POINT.json is a list of one object, as `reproduce simulate` reads; its keys may stand in its place. What was
measured are seconds of an iteration, or a log of
{LOGS} (docs/explain.md).

example:
  reproduce explain model=llama-3-70b d=32 B=32 data_parallel=zero3 attention=sdpa --cluster h200 --seconds 41

Of a profiled step, time by phase: reproduce explain trace.

"""


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `reproduce explain`."""
    parser.add_argument("file", metavar="POINT.json", help="the configuration that was run; - reads standard input")
    parser.add_argument(
        "words", nargs="*", default=[], metavar="key=value", help="in its place its keys: model=llama-3-8b d=8 B=64"
    )
    measured = parser.add_mutually_exclusive_group(required=True)
    measured.add_argument("--seconds", type=_seconds, help="measured time of an iteration")
    measured.add_argument("--log", type=options.path_of, metavar="FILE", help="a log with throughput lines")
    parser.add_argument(
        "--against",
        metavar="POINT2.json|ROW",
        help="a configuration that was faster, or a published row, as table_weak_scaling:model_145_6b: split the gap",
    )
    parser.add_argument("--seconds2", type=_seconds, metavar="SECONDS", help="measured time of an iteration of POINT2")
    options.add_cluster(parser, "for points that name none")
    options.add(parser, "program", "json")


def _seconds(text: str) -> float:
    try:
        return options.above_zero(text)
    except ArgumentTypeError:
        raise ArgumentTypeError(f"{text} is no time of an iteration; needs seconds above 0; try 4.1") from None


def run(parsed: Namespace) -> int:
    """Explain the measurement, print it, return the exit code."""
    config, cluster = read_point([parsed.file, *parsed.words], parsed.cluster, parsed.trainer)
    measurement = Measurement(seconds=parsed.seconds) if parsed.log is None else _logged(parsed.log)
    explanation, gap = explain(config, cluster, measurement), None
    if parsed.against is not None:
        gap = _gap(parsed, config, cluster, explanation.measured)
    elif parsed.seconds2 is not None:
        raise UsageError("--seconds2 is of another configuration; needs --against POINT2.json, too")
    if parsed.json:
        _print_json(explanation, gap)
    else:
        print(*_lines(explanation, gap, cluster), sep="\n")
    return DONE


def _gap(parsed: Namespace, config: TrainingConfig, cluster: Cluster, seconds: float) -> Gap:
    """The gap to what --against names, with its measured time where that is known."""
    measured = parsed.seconds2
    if (rows := part("accuracy", "published_rows")).is_row(parsed.against):
        if measured is not None:
            raise UsageError(f"--seconds2 with --against {parsed.against}, whose time is published; leave it out")
        row = rows.find_row(parsed.against)
        other, there, measured = row.config, row.cluster, row.seconds
    else:
        other, there = read_point([parsed.against], parsed.cluster, parsed.trainer)
    ratio = None
    if measured is not None:
        ratio = utilization(config, cluster, seconds) / utilization(other, there, measured)
    return split_gap(config, other, cluster, there, ratio)


def _logged(path: Path) -> Measurement:
    try:
        return read_lines(opening.read_text(path, errors="replace"), str(path))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}; needs the lines of a run") from None


def _print_json(explanation: Explanation, gap: Gap | None) -> None:
    from results.records.documents import print_document

    document: dict[str, Any] = {
        "origin": "simulated",
        **asdict(explanation),
        "inside": explanation.inside,
        "deciding": explanation.deciding,
        "differences": None if gap is None else [asdict(share) for share in gap.shares],
        "against": None
        if gap is None
        else {"simulated": gap.simulated, "measured": gap.measured, "unexplained": gap.unexplained},
    }
    print_document("explain", 1, document)


def _lines(explanation: Explanation, gap: Gap | None, cluster: Cluster) -> list[str]:
    low, high = explanation.low, explanation.high
    here = low is not None
    interval = (
        f"interval of this program {low:.3f} - {high:.3f} s" if here else f"no interval on {cluster.name}: no data"
    )
    lines = [f"measured {explanation.measured:.3f} s, simulated {explanation.simulated:.3f} s ({interval})"]
    verdict = "as fast as simulated, as far as the simulator is sure" if explanation.inside else "not as simulated"
    whose = "" if here else f", Selene's, as {cluster.name} has none"
    lines.append(f"{verdict} (within a factor of {explanation.tolerance:.3f}{whose})")
    if explanation.causes:
        order = "first what fits at a usual size, of equal ones what explains more"
        lines += ["", f"single causes (simulated), {order}:"]
    lines += [
        f"{number:2}. {cause.name}: {cause.change}"
        + (f" -> {cause.seconds:.3f} s, {cause.explained:.0%} of the gap" if cause.name != "accounting" else "")
        for number, cause in enumerate(explanation.causes[:SHOWN], 1)
    ]
    if explanation.deciding:
        lines.append(f"what would decide between the first two: {explanation.deciding}")
    if gap is not None:
        lines += ["", *_gap_lines(gap, explanation.tolerance)]
    return lines


def _gap_lines(gap: Gap, tolerance: float) -> list[str]:
    lines = [f"MFU over the other's: simulated x{gap.simulated:.3f}, by difference (Shapley; the product is all):"]
    lines += [f"  x{share.factor:.3f}  {share.change}" for share in gap.shares]
    if gap.together:
        lines.append(f"  more than {MOST_PLAYERS} differences: the last {gap.together} fields are one, not split")
    if gap.unexplained is not None:
        how = "within" if 1 / tolerance <= gap.unexplained <= tolerance else "beyond"
        left = f"x{gap.unexplained:.3f} is not explained, {how} the simulator's x{tolerance:.3f}"
        lines.append(f"measured x{gap.measured:.3f}: {left}")
    return lines

"""`reproduce explain`: why a measured iteration takes as long as it does. Imports no torch."""

import math
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ptdp_core.errors import ConfigurationError
from ptdp_core.simulator import Cluster
from reproduce.analysis.explanation import Explanation, Share, explain, split_gap
from reproduce.analysis.throughput_lines import Measurement, read_lines
from reproduce.commands import options
from reproduce.commands.simulate import read_point
from results.records.errors import DONE, UsageError

SHOWN = 8
HELP = """POINT.json is a list of one object, as `reproduce simulate` reads. What was measured are seconds of an
iteration, or a log: of Megatron-LM, NeMo, torchtitan, llm-foundry or `reproduce train` (docs/explain.md).

example:
  echo '[{"model": "llama-3-70b", "d": 32, "B": 32, "data_parallel": "zero3", "attention": "sdpa"}]' > mine.json
  reproduce explain mine.json --cluster h200 --seconds 41

"""


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `reproduce explain`."""
    parser.add_argument("file", metavar="POINT.json", help="the configuration that was run; - reads standard input")
    measured = parser.add_mutually_exclusive_group(required=True)
    measured.add_argument("--seconds", type=_seconds, help="measured time of an iteration")
    measured.add_argument("--log", type=options.path_of, metavar="FILE", help="a log with throughput lines")
    parser.add_argument(
        "--against", type=options.path_of, metavar="POINT2.json", help="a configuration that was faster: split the gap"
    )
    options.add_cluster(parser, "for points that name none")
    options.add_json(parser)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ArgumentTypeError(f"{text} is no time of an iteration; needs seconds above 0; try 4.1")
    return value


def run(parsed: Namespace) -> int:
    """Explain the measurement, print it, return the exit code."""
    config, cluster = read_point(parsed.file, parsed.cluster)
    measurement = Measurement(seconds=parsed.seconds) if parsed.log is None else _logged(parsed.log)
    explanation, differences = explain(config, cluster, measurement), None
    if parsed.against is not None:
        try:
            differences = split_gap(config, read_point(str(parsed.against), parsed.cluster)[0], cluster)
        except ConfigurationError as error:
            raise UsageError(f"--against {parsed.against}: the two cannot be mixed: {error}") from None
    if parsed.json:
        _print_json(explanation, differences)
    else:
        print(*_lines(explanation, differences, cluster), sep="\n")
    return DONE


def _logged(path: Path) -> Measurement:
    try:
        return read_lines(path.read_text(encoding="utf-8", errors="replace"), str(path))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None


def _print_json(explanation: Explanation, differences: tuple[Share, ...] | None) -> None:
    from results.records.documents import print_document

    document: dict[str, Any] = {
        "origin": "simulated",
        **asdict(explanation),
        "inside": explanation.inside,
        "deciding": explanation.deciding,
        "differences": None if differences is None else [asdict(difference) for difference in differences],
    }
    print_document("explain", 1, document)


def _lines(explanation: Explanation, differences: tuple[Share, ...] | None, cluster: Cluster) -> list[str]:
    low, high = explanation.low, explanation.high
    interval = f"interval {low:.3f} - {high:.3f} s" if low is not None else f"no interval on {cluster.name}: no data"
    lines = [f"measured {explanation.measured:.3f} s, simulated {explanation.simulated:.3f} s ({interval})"]
    verdict = "as fast as simulated, as far as the simulator is sure" if explanation.inside else "not as simulated"
    lines.append(f"{verdict} (a factor of {explanation.tolerance:.3f}, Selene's where the cluster has none of its own)")
    lines += ["", "single causes, best first (simulated):"]
    lines += [
        f"{number:2}. {cause.name}: {cause.change}"
        + (f" -> {cause.seconds:.3f} s, {cause.explained:.0%} of the gap" if cause.name != "accounting" else "")
        for number, cause in enumerate(explanation.causes[:SHOWN], 1)
    ]
    if explanation.deciding:
        lines.append(f"what would decide between the first two: {explanation.deciding}")
    if differences is not None:
        lines += ["", "MFU against the other configuration, by difference (simulated, Shapley; the product is all):"]
        lines += [f"  x{difference.factor:.3f}  {difference.change}" for difference in differences]
    return lines

"""A cluster file from tables that others measured on a machine: matrix products, fused attention, nccl-tests.

    GEMM table        CSV: m, n, k, perhaps batch, and seconds, ms, us or tflops
    attention table   CSV: batch, seq, heads, head_size, pass (forward or backward), and seconds, ms, us; a causal mask
    collectives       what nccl-tests prints, for one number of GPUs: an all-reduce, or an all-gather and a
                      reduce-scatter, of which a program with sequence parallelism has both in its place; of a part of
                      a node, or of several nodes

The numbers that these decide are fitted as those of a calibration are (`fit.py`); all others are the base's. What is of
several nodes alone makes a network file, for `--network`.
"""

import csv
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import expm1, inf, log
from pathlib import Path
from statistics import median
from textwrap import wrap
from typing import Any, NamedTuple

from ptdp_core.layers.parts import FusedAttention, Gemm
from ptdp_core.simulator import Cluster, ClusterParameter, load_cluster, read_parameters
from ptdp_core.simulator.cluster import OF_NETWORKS
from ptdp_core.simulator.kernels import KernelModel
from reproduce.annex.calibrate import between_nodes
from reproduce.annex.calibrate.fit import GROUPS, MEASURED, as_parameter
from reproduce.annex.calibrate.gemm_fit import fit_gemms, gemm_error
from reproduce.annex.calibrate.lines import LEAST, FitPoint, Fitted, line, line_error
from reproduce.annex.calibrate.write import WIDTH, fit_errors, parameter_lines, quoted
from results import opening
from results.records.errors import UsageError

TIMES = {"seconds": 1.0, "ms": 1e-3, "us": 1e-6}
SHOWN = 40  # letters of a cell that is wrong
LEAST_ROWS, MOST_ROWS = 3, 10_000
MOST_SIZE = 10**9
SECONDS = (LEAST, 1e6)  # of one operation
PRODUCTS = {"forward": 2, "backward": 5}  # of fused attention, each of 2 FLOPs for a query, a key and an element
# A line of nccl-tests: size, count, type, redop, root, then time (us), algbw, busbw (GB/s) out of place.
NCCL_LINE = re.compile(
    r"^ *(\d{1,18}) +\d+ +\w+ +(\w+) +-?\d+" + 3 * r" +(\d{1,18}(?:\.\d*)?)" + r"(?: |$)", re.MULTILINE
)
ALL_REDUCE, HALVES = "all_reduce", ("all_gather", "reduce_scatter")
NCCL_TEST = re.compile(r"^# *Collective test starting: (\w+)", re.MULTILINE)  # of releases from 2.13 on
NCCL_RANK = re.compile(r"^#\s+Rank\s+\d+(?:.* on +(\S+) +device)?", re.MULTILINE)


class TimedAttention(NamedTuple):
    """A pass of fused attention as a table has it (`operators.FusedAttention`), and its seconds."""

    work: FusedAttention
    seconds: float


class TimedCollective(NamedTuple):
    """A collective of `ranks` GPUs as nccl-tests printed it: bytes on the bus and seconds by size.

    `hosts` is the number of nodes that it names, 0 if it names none.
    """

    file: str
    name: str
    ranks: int
    rows: list[FitPoint]
    hosts: int = 0


@dataclass(frozen=True)
class FromTables:
    """What tables make of a base: numbers before and after, and how far the model with them is from each table."""

    base: str
    before: Mapping[str, ClusterParameter]
    after: Mapping[str, ClusterParameter]
    errors: Mapping[str, float]
    notes: Sequence[str] = ()

    @property
    def is_network(self) -> bool:
        """Whether all of them are numbers between nodes, so that their file is one of a network."""
        return set(self.after) <= set(OF_NETWORKS)


def rows_of(path: Path, columns: Sequence[str], further: Sequence[str] = ()) -> list[dict[str, str]]:
    """The rows of a CSV file with these columns, and one with a time or one of `further`. Raises `UsageError`."""
    try:
        rows = [
            {str(key).strip().lower(): str(value).strip() for key, value in row.items()}
            for row in csv.DictReader(opening.read_text(path).splitlines())
        ]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"cannot read {path}: {error}; needs a CSV file") from None
    known = set(rows[0]) if rows else set()
    if missing := [name for name in columns if name not in known]:
        raise UsageError(f"{path} lacks the column {missing[0]!r}; needs {', '.join(columns)}, and a time")
    if not known & {*TIMES, *further}:
        raise UsageError(f"{path} has no time; needs a column {', '.join((*TIMES, *further))}")
    if not LEAST_ROWS <= len(rows) <= MOST_ROWS:
        bound = f"at least {LEAST_ROWS}" if len(rows) < LEAST_ROWS else f"at most {MOST_ROWS:,}"
        raise UsageError(f"{path} has {len(rows)} rows; needs {bound}")
    return rows


def _number(path: Path, line: int, row: Mapping[str, str], name: str) -> float:
    text = row.get(name) or ""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise UsageError(f"{path}, line {line}: {name}={text[:SHOWN]!r} is no number above 0; needs one")
    return value


def _size(path: Path, line: int, row: Mapping[str, str], name: str, default: str = "") -> int:
    value = _number(path, line, {name: row.get(name) or default}, name)
    if value > MOST_SIZE or value != int(value):
        raise UsageError(f"{path}, line {line}: {name}={value:g}; needs a whole number of at most {MOST_SIZE:.0e}")
    return int(value)


def _seconds(path: Path, line: int, row: Mapping[str, str], flops: float) -> float:
    column = next((name for name in TIMES if name in row), "tflops")
    value = _number(path, line, row, column)
    seconds = TIMES[column] * value if column in TIMES else flops / (1e12 * value)
    if not SECONDS[0] < seconds < SECONDS[1]:
        shown = f"{column}={value:g} is a time of {seconds:g} s"
        raise UsageError(f"{path}, line {line}: {shown}; needs one between {SECONDS[0]:g} and {SECONDS[1]:g} s")
    return seconds


def gemms(path: Path) -> dict[Gemm, float]:
    """Seconds by shape, the median of those that a table has several times. Raises `UsageError`."""
    found: dict[Gemm, list[float]] = defaultdict(list)
    for number, row in enumerate(rows_of(path, ("m", "n", "k"), ("tflops",)), 2):
        m, n, k = (_size(path, number, row, name) for name in "mnk")
        batch = _size(path, number, row, "batch", "1")
        found[m, n, k, batch].append(_seconds(path, number, row, 2.0 * m * n * k * batch))
    return {shape: median(times) for shape, times in found.items()}


def attention(path: Path) -> list[TimedAttention]:
    """The passes of a table. Raises `UsageError`."""
    passes = []
    for number, row in enumerate(rows_of(path, ("batch", "seq", "heads", "head_size", "pass")), 2):
        b, s, heads, head = (_size(path, number, row, name) for name in ("batch", "seq", "heads", "head_size"))
        if row["pass"] not in PRODUCTS:
            raise UsageError(f"{path}, line {number}: pass={row['pass'][:SHOWN]!r}; needs {' or '.join(PRODUCTS)}")
        flops = 2.0 * PRODUCTS[row["pass"]] * b * heads * s * s * head
        work = FusedAttention(flops, s, head, row["pass"] == "backward", b * heads * s)
        passes.append(TimedAttention(work, _seconds(path, number, row, flops)))
    return passes


def collective(path: Path) -> TimedCollective:
    """The collective of a file that nccl-tests printed. Raises `UsageError`."""
    try:
        text = opening.read_text(path).expandtabs()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}; needs what nccl-tests prints") from None
    found = [(float(size), operation, *map(float, rest)) for size, operation, *rest in NCCL_LINE.findall(text)]
    rows = [row for row in found if SECONDS[0] < 1e-6 * row[2] < SECONDS[1] and row[0] > 0 and row[3] > 0]
    if not LEAST_ROWS <= len(rows) <= MOST_ROWS:
        raise UsageError(f"{path} has {len(rows)} lines with a size and a time; needs what nccl-tests prints")
    _, operation, _, algorithm, bus = max(rows)
    factor = bus / algorithm  # 2(n-1)/n of an all-reduce, which is at least 1, (n-1)/n of the others
    name = ALL_REDUCE if factor > 0.99 else HALVES[operation != "none"]
    share = factor / 2 if name == ALL_REDUCE else factor
    if (test := NCCL_TEST.search(text)) and test[1] not in (f"{each}_perf" for each in (ALL_REDUCE, *HALVES)):
        raise UsageError(
            f"{path} is of {test[1]}; needs an all-reduce, all-gather or reduce-scatter; try all_reduce_perf"
        )
    named = NCCL_RANK.findall(text)
    ranks = len(named) or round(1 / max(0.01, 1 - share))
    if abs(share - (ranks - 1) / ranks) > 0.01:  # as rounded there
        raise UsageError(
            f"{path}: bus over algorithm bandwidth is {factor:.3g} on {ranks} GPUs; needs that of an all-reduce, "
            "all-gather or reduce-scatter; try all_reduce_perf"
        )
    points = [FitPoint(1, factor * row[0], 1e-6 * row[2]) for row in rows]
    return TimedCollective(path.name, name, ranks, points, len({*named} - {""}))


def _nodes(path: Path, timed: TimedCollective, gpus_per_node: int) -> int:
    """How many nodes a collective spans, of the base's size: 1 for 2, 4 or 8 GPUs of one. Raises `UsageError`."""
    nodes, rest = divmod(timed.ranks, gpus_per_node)
    inside = timed.ranks in GROUPS and timed.ranks <= gpus_per_node
    whole = 1 if inside else nodes
    if not inside and (rest or nodes < 2):
        raise UsageError(
            f"{path} is of {timed.ranks} GPUs; needs 2, 4 or 8 of one node, or whole nodes of {gpus_per_node}"
        )
    if timed.hosts and timed.hosts != whole:
        raise UsageError(
            f"{path} is of {timed.ranks} GPUs on {timed.hosts} nodes; needs the base's {gpus_per_node} a node; "
            f"try a --base with gpus_per_node={timed.ranks // timed.hosts}"
        )
    return whole


def _links(
    files: Iterable[Path], cluster: Cluster
) -> tuple[dict[str, tuple[Fitted, str]], dict[str, float], list[str]]:
    """Latency and bandwidth by number of GPUs, the errors, and what there is to say. Raises `UsageError`."""
    numbers: dict[str, tuple[Fitted, str]] = {}
    errors: dict[str, float] = {}
    notes: list[str] = []
    by_ranks: dict[int, dict[str, TimedCollective]] = defaultdict(dict)
    spans: dict[int, int] = {}
    for path in files:
        timed = collective(path)
        spans[timed.ranks] = _nodes(path, timed, cluster.gpus_per_node)
        if timed.name in by_ranks[timed.ranks]:
            raise UsageError(f"{path} is a second {timed.name} of {timed.ranks} GPUs; needs one")
        by_ranks[timed.ranks][timed.name] = timed
    if len(several := [ranks for ranks, nodes in spans.items() if nodes > 1]) > 1:
        shown = " and ".join(map(str, several))
        raise UsageError(f"collectives over several nodes are of {shown} GPUs; needs one number; try the largest")
    for ranks, named in by_ranks.items():
        if set(named) not in ({ALL_REDUCE}, set(HALVES)):
            given = " and ".join(named)
            raise UsageError(
                f"collectives of {ranks} GPUs are {given}; needs an {ALL_REDUCE}, or both {' and '.join(HALVES)}"
            )
        fitted = [line(each.rows) for each in named.values()]
        source = " and ".join(each.file for each in named.values())
        latency, bandwidth = _added([each[0] for each in fitted]), _mean_rate([each[1] for each in fitted])
        if spans[ranks] > 1:
            rows = named[ALL_REDUCE].rows if ALL_REDUCE in named else []
            measured = between_nodes.SeveralNodes(source, ranks, spans[ranks], latency, bandwidth, rows)
            found, note = between_nodes.numbers(measured, cluster)
            numbers |= found
            notes.append(note)
            if rows:
                errors[f"{ALL_REDUCE} of {ranks}"] = expm1(between_nodes.error(measured, cluster, found))
                continue
        else:
            numbers[f"nvlink_latency_{ranks}"] = latency, f"{source}: what does not depend on the size"
            numbers[f"nvlink_bandwidth_{ranks}"] = bandwidth, f"{source}: bus bandwidth over the rest"
        for each, (constant, rate) in zip(named.values(), fitted, strict=True):
            errors[f"{each.name} of {ranks}"] = expm1(line_error(each.rows, constant.value, rate.value))
    return numbers, errors, notes


def _added(latencies: Sequence[Fitted]) -> Fitted:
    """The latency of one collective after the other."""
    return Fitted(*map(sum, zip(*latencies, strict=True)))


def _mean_rate(rates: Sequence[Fitted]) -> Fitted:
    """The rate of as many bytes by each: their harmonic mean."""
    return Fitted(*(len(rates) / sum(1 / rate for rate in of_each) for of_each in zip(*rates, strict=True)))


def fit_tables(
    base: str, gemm_file: Path | None, attention_file: Path | None, collectives: Iterable[Path]
) -> FromTables:
    """The numbers of `base` that these tables decide. Raises `UsageError` for a table that cannot be read."""
    known, cluster = read_parameters(base), load_cluster(base)
    numbers: dict[str, tuple[Fitted, str]] = {}
    errors: dict[str, float] = {}
    if gemm_file:
        times = gemms(gemm_file)
        source = f"fitted, with the other GEMM numbers, to {len(times)} products of {gemm_file.name}"
        fitted = fit_gemms(times, cluster)
        numbers |= {name: (number, source) for name, number in fitted.items()}
        cluster = replace(cluster, **{name: number.value for name, number in fitted.items()})  # type: ignore[arg-type]
        errors["products"] = expm1(gemm_error(times, cluster, {}))
    if attention_file:
        passes = attention(attention_file)
        source = f"fitted to {len(passes)} passes of {attention_file.name}"
        found = _attention_numbers(passes, cluster)
        numbers |= {name: (number, source) for name, number in found.items()}
        cluster = replace(cluster, **{name: number.value for name, number in found.items()})  # type: ignore[arg-type]
        errors["attention"] = expm1(_attention_error(passes, cluster))
    links, link_errors, notes = _links(collectives, cluster)
    numbers |= links
    errors |= link_errors
    after = {name: as_parameter(name, known, value, source, MEASURED) for name, (value, source) in numbers.items()}
    return FromTables(base, {name: known[name] for name in after}, after, errors, notes)


def _attention_numbers(passes: Sequence[TimedAttention], cluster: Cluster) -> dict[str, Fitted]:
    """The shares of the peak at which long passes run, by the model's rule for shorter ones and other heads.

    Where the table has passes of several lengths, that with half of the share is fitted, too, and likewise the rows.
    """
    lengths = [cluster.attention_half_length]
    if len({each.work.seq for each in passes}) >= LEAST_ROWS:
        lengths += _steps(1, 3_000)
    best: dict[str, Fitted] = {}
    least = inf
    for length in lengths:
        numbers = {"attention_half_length": _about(length)} if len(lengths) > 1 else {}
        spread = 0.0
        for name, backward in (("forward", False), ("backward", True)):
            if own := [each for each in passes if each.work.backward == backward]:
                known = replace(cluster, **{f"attention_{name}": 1.0, "attention_half_length": length})  # type: ignore[arg-type]
                shares, rows, apart = _share(own, known, f"attention_half_rows_{name}")
                numbers |= {f"attention_{name}": Fitted(median(shares), min(shares), max(shares))} | rows
                spread += apart
        if spread < least:
            best, least = numbers, spread
    return best


def _share(passes: Sequence[TimedAttention], known: Cluster, name: str) -> tuple[list[float], dict[str, Fitted], float]:
    """By pass the share of the peak on a cluster that has all of it; the rows with half of it, if they can be told.

    The last value is how far the logarithms of the shares are apart, summed up.
    """

    def shares(rows: float) -> list[float]:
        whole = KernelModel(replace(known, **{name: rows}))  # type: ignore[arg-type]
        return [whole.attention(*each.work) / each.seconds for each in passes]

    def apart(rows: float) -> float:
        logs = [log(value) for value in shares(rows)]
        return sum(abs(value - median(logs)) for value in logs)

    rows = getattr(known, name)
    if len({each.work.rows for each in passes}) < LEAST_ROWS:
        return shares(rows), {}, apart(rows)
    rows = min([rows, *_steps(1_000, 500_000)], key=apart)
    return shares(rows), {name: _about(rows)}, apart(rows)


def _steps(low: float, high: float) -> list[float]:
    """Numbers from `low` on, each a fifth larger than the one before."""
    return [float(round(low * 1.2**step)) for step in range(round(log(high / low) / log(1.2)) + 1)]


def _about(value: float) -> Fitted:
    """A number that is known to a factor of two."""
    return Fitted(value, value / 2, 2 * value)


def _attention_error(passes: Sequence[TimedAttention], cluster: Cluster) -> float:
    """Mean |log(model / measured)| over the passes."""
    model = KernelModel(cluster)
    return sum(abs(log(model.attention(*each.work) / each.seconds)) for each in passes) / len(passes)


def text(found: FromTables, name: str, command: str) -> str:
    """The cluster file: what differs from the base, and what of the model is how far from the tables."""
    what = "a network of its nodes" if found.is_network else "tables of this machine"
    rest = (
        f"a network file, for --network, by nodes as {found.base}'s"
        if found.is_network
        else f"all else is {found.base}'s"
    )
    comment = f"Made by `{command}`: what the tables measured; {rest}. Mean difference of the model"
    lines = [f"# {line}" for line in wrap(f"{comment} from them: {fit_errors(found.errors)}.", WIDTH - 2)]
    lines += ["", f"name = {quoted(name)}", f"description = {quoted(f'{found.base}, with {what}')}"]
    lines += [] if found.is_network else [f"base = {quoted(found.base)}"]
    return "\n".join([*lines, *(line for each in found.after.values() for line in parameter_lines(each))]) + "\n"


def document(out: Path, found: FromTables) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "out": str(out),
        "base": found.base,
        "before": {name: each.value for name, each in found.before.items()},
        "parameters": [asdict(each) for each in found.after.values()],
        "errors": dict(found.errors),
    }

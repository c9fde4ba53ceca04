"""Sealed predictions: public training runs, predicted before anybody joins what they measured.

A row says what its source publishes of a run: `id`, `hardware`, `model` (fields or a name), `layout`, `precision`,
`metric` (what will be scored) and `needs` (techniques of that run); `choices` are fields of a configuration that the
source leaves out, or that cannot be described, and the training program's `software`, with `why`. The record has a
point for every row: the prediction with its interval, or the reason why there is none, what was simulated, and the
digests of all that the numbers depend on.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.errors import ConfigurationError
from ptdp_core.formulas import layer_forward_flops, logit_flops
from ptdp_core.pipeline_layout import layout_of
from ptdp_core.schedules import default_schedule
from ptdp_core.schedules.vocabulary import METHODS as SHARED
from ptdp_core.schedules.vocabulary import SEPARATOR
from ptdp_core.simulator import Cluster, Estimate, simulate
from ptdp_core.simulator.cluster import CLUSTER_FOLDER, PROGRAM, SOFTWARE
from ptdp_core.simulator.programs import load_program
from ptdp_core.simulator.software import software_of
from reproduce.annex.accuracy.ledger import range_of_today
from reproduce.experiment import margins
from reproduce.experiment import metrics as quantities
from reproduce.experiment.sweep import check_keys
from reproduce.planning.advice import advice, to_try
from reproduce.planning.elasticities import what_limits
from reproduce.planning.models import with_model_fields
from reproduce.running import simulated
from reproduce.running.fidelities import sources_digest
from reproduce.running.runner import RECORD, require_folder
from results.records import Interval, Metric, PointResult, Record, digest_file, fingerprint, write_record
from results.records.errors import UsageError, did_you_mean
from results.records.provenance import collect

MODEL, PARALLEL = ([field.name for field in fields(part)] for part in (ModelConfig, ParallelConfig))

REQUIRED = ("id", "hardware", "model", "layout", "precision", "metric")
OPTIONAL = ("needs", "program", "choices", "why")
MEASUREMENTS = ("measured", "result", "iteration_s", "tokens_per_s_per_gpu", "samples_per_gpu_s", "tflops_per_gpu")
# What sources publish, and the metrics that predict it.
METRICS = {
    "iteration_s": ("iteration_time",),
    "tokens_per_s_per_gpu": ("tokens_per_s_per_gpu",),
    "MFU and peak memory of the fullest GPU": ("model_flops_utilization", "peak_memory"),
}
# What sources call hardware, precisions, techniques and fields, and what these are here.
WORDS: Mapping[str, Mapping[str, str]] = tomllib.loads(Path(__file__).with_name("sealed_words.toml").read_text("utf-8"))
CLOSE = "too close to say whether it fits"
REMARKS = ("here)", "not published")  # how a need ends that says what was or has to be chosen
LAYOUT_OTHERS = (
    *("gpus", "fsdp", "recompute", "sharding", "mixed", "program", "compile", "async_tp"),
    *("overlap", "tp_comm_overlap", "cuda_graphs", "dispatcher", "grouped_gemm", "method"),
    *("overlap_grad_reduce", "overlap_param_gather", "overlap_grad_sync", "overlap_param_sync"),
)
WHOLE = {item.name for part in (ModelConfig, ParallelConfig) for item in fields(part) if type(item.default) is int}
SIZES = ("gpus", "fsdp", *(word for word, name in WORDS["layout"].items() if name in WHOLE))
# A source with two precisions in a row puts the other one's size in brackets: 64 (0).
SIZE = re.compile(r"(\d+)(?: \(\d+\))?")


def check(rows: Sequence[Any], file: str) -> None:
    """Raise `UsageError` unless these are rows without a measurement, all of whose words are known."""
    seen = set()
    for number, row in enumerate(rows, 1):
        where = f"{file}: row {number}"
        if not isinstance(row, dict):
            raise UsageError(f"{where} is no object; needs the keys {', '.join(REQUIRED)}")
        if held := [key for key in MEASUREMENTS if key in row]:
            raise UsageError(f"{where} holds a measurement, {held[0]!r}; needs rows without what is to be predicted")
        _known(row, (*REQUIRED, *OPTIONAL), f"{where}: key")
        if missing := [key for key in REQUIRED if key not in row]:
            raise UsageError(f"{where} lacks {', '.join(missing)}; needs {', '.join(REQUIRED)}")
        _check_words(row, where)
        if row["id"] in seen:
            raise UsageError(f"{where}: id {row['id']!r} stands twice; needs each once")
        seen.add(row["id"])


def _check_words(row: Mapping[str, Any], where: str) -> None:
    texts, objects = ("id", "hardware", "precision", "metric"), ("model", "layout")
    for keys, kind, called in ((texts, str, "a text"), (objects, dict, "an object"), (("needs",), list, "a list")):
        for key in keys:
            if not isinstance(row.get(key, []), kind):
                raise UsageError(f"{where}: {key}={row[key]!r} is not {called}; needs {called}")
    _known([row["hardware"]], tuple(WORDS["hardware"]), f"{where}: hardware")
    _known([row["precision"]], tuple(WORDS["precision"]), f"{where}: precision")
    _known([row["metric"]], tuple(METRICS), f"{where}: metric")
    _known(
        [need for need in row.get("needs", []) if not str(need).endswith(REMARKS)],
        tuple(WORDS["technique"]),
        f"{where}: technique",
    )
    _known(row["layout"], (*WORDS["layout"], *LAYOUT_OTHERS), f"{where}: layout's")
    _known([row["layout"].get("method", "baseline")], tuple(WORDS["method"]), f"{where}: method")
    for key in SIZES:
        if (value := row["layout"].get(key)) is not None and not SIZE.fullmatch(str(value)):
            raise UsageError(
                f"{where}: {key}={value!r} is no size; needs a whole number, or null where none is published"
            )
    _known(row["model"], ("name", *MODEL), f"{where}: model's")
    if not isinstance(row.get("choices", {}), dict):
        raise UsageError(f"{where}: choices={row['choices']!r} is not an object; needs fields of a configuration")
    _known(row.get("choices", {}), (*MODEL, *PARALLEL, SOFTWARE, PROGRAM), f"{where}: choice")
    try:
        software_of(row.get("choices", {}).get(SOFTWARE, []))
        if program := row.get("choices", {}).get(PROGRAM):
            load_program(program)
    except ConfigurationError as error:
        raise UsageError(f"{where}: choice {error}") from None


def _known(words: Any, known: Sequence[str], what: str) -> None:
    for word in words:
        if word not in known:
            hint = did_you_mean(str(word), list(known)) or f"; known: {', '.join(known)}"
            raise UsageError(f"{what} {word!r} is unknown{hint}")


def _layout(row: Mapping[str, Any]) -> dict[str, Any]:
    """What is published of a row's layout, sizes as numbers."""
    known = {key: value for key, value in row["layout"].items() if value is not None}
    return {key: int(str(value).split()[0]) if key in SIZES else value for key, value in known.items()}


class SimulatedRow(NamedTuple):
    """A row simulated: its configuration as given, its cluster with its program, and the switches that it names."""

    entry: dict[str, Any]
    estimate: Estimate
    cluster: Cluster
    program: str | None
    switches: list[str] | None


def simulate_row(row: Mapping[str, Any], program: str | None = None) -> SimulatedRow:
    """See `predict`. Raises `ConfigurationError` and `UsageError` where it cannot be."""
    entry = configuration(row)
    check_keys(entry)
    config = TrainingConfig.from_plain(entry)
    if config.parallel.n != (gpus := _layout(row).get("gpus", config.parallel.n)):
        raise ConfigurationError(f"p*t*c*d={config.parallel.n} is not gpus={gpus}; needs sizes that agree")
    simulated.check_passes(config)
    of_source = WORDS["program"].get(row["id"].rpartition("-")[0])
    program = row.get("choices", {}).get(PROGRAM, of_source or program) or None
    cluster, _ = simulated.open_cluster(WORDS["hardware"][row["hardware"]], program)
    if program:
        load_program(program).check(config)
    if (switches := _software(row, cluster)) is not None:
        cluster = replace(cluster, software=software_of(switches))
    return SimulatedRow(entry, simulate(config, cluster), cluster, program, switches)


def predict(row: Mapping[str, Any], program: str | None = None) -> PointResult:
    """The sealed point of a checked row, of a `program` where neither its choices nor its source name one."""
    parameters: dict[str, Any] = {"hardware": row["hardware"], "precision": row["precision"]}
    if lacking := _not_described(row):
        return _point(row, parameters, "skipped", f"not described: {', '.join(lacking)}", {})
    try:
        entry, estimate, cluster, program, switches = simulate_row(row, program)
    except (ConfigurationError, UsageError) as error:
        return _point(row, parameters, "invalid", str(error), {})
    name = WORDS["hardware"][row["hardware"]]
    parameters |= _what_differs(estimate.config, entry) | {"cluster": name}
    if switches is not None:
        parameters[SOFTWARE] = ", ".join(switches)
    if named := program or cluster.program:
        parameters[PROGRAM] = named
    interval = interval_of(estimate.config, name, estimate.iteration_time, program)
    status, reason = ("ok", None) if estimate.fits else ("oom", simulated.oom_reason(estimate, cluster))
    if status == "oom" and margins.memory_is_close(estimate, cluster):
        status, reason, parameters["memory"] = "ok", None, f"{CLOSE}: {reason}"
    elif reason:
        reason += f"; {to_try(advice(estimate, cluster))}"
    metrics = {metric: _metric(metric, estimate, cluster, interval) for metric in METRICS[row["metric"]]}
    return _point(row, parameters, status, reason, metrics)


def limited_by(rows: Sequence[Mapping[str, Any]], program: str | None = None) -> Iterator[str]:
    """A line for each row that is predicted: its time and what limits it."""
    for row in rows:
        with suppress(ConfigurationError, UsageError):
            if not _not_described(row):
                _, estimate, cluster, *_ = simulate_row(row, program)
                yield f"{row['id']}: {estimate.iteration_time:.3f} s, {what_limits(estimate, cluster)}"


def _what_differs(config: TrainingConfig, entry: Mapping[str, Any]) -> dict[str, Any]:
    """What was simulated: fields of a row's entry, and those that are not at their defaults, a part of the sources."""
    defaults = {item.name: item.default for item in (*fields(ModelConfig), *fields(ParallelConfig))}
    plain = config.to_plain()
    return {name: value for name, value in plain.items() if name in entry or value != defaults[name]}


def _software(row: Mapping[str, Any], cluster: Cluster) -> list[str] | None:
    """The switches of a row's program, if it says any or has a technique that is one; None: its cluster's."""
    chosen: list[str] | None = row.get("choices", {}).get(SOFTWARE)
    if switches := [switch for need, switch in WORDS["switch"].items() if need in row.get("needs", [])]:
        usual = [switch for switch, on in vars(cluster.software).items() if on]
        chosen = [*(usual if chosen is None else chosen), *switches]
    return chosen


def _metric(name: str, estimate: Estimate, cluster: Cluster, seconds: Interval) -> Metric:
    """A predicted metric with its interval, that of the iteration's seconds; memory has none."""
    metric = quantities.METRICS[name]
    assert metric.of is not None
    value = metric.of(estimate, cluster)
    assert value is not None
    if metric.margin == "memory":
        return Metric(value, metric.unit, "simulated")
    if name == "iteration_time":
        return Metric(value, metric.unit, "simulated", interval=seconds)
    low, high = (value * estimate.iteration_time / end for end in (seconds.high, seconds.low))
    return Metric(value, metric.unit, "simulated", interval=Interval(low, high, seconds.coverage))


def interval_of(config: TrainingConfig, cluster: str, seconds: float, program: str | None = None) -> Interval:
    """The interval of an iteration time: that of runs like it, of its program or of any if none is named.

    On the paper's cluster it is the cluster's margin, and where nothing was scored where all of today's runs lie.
    """
    of_class = margins.of_class(cluster, config.to_plain(), program)
    known = margins.read(cluster)
    margin = of_class or (known and known.of("iteration_time", config.to_plain()))
    if margin:
        return margin.interval(seconds)
    low, high = range_of_today()
    return Interval(min(1.0, low) * seconds, max(1.0, high) * seconds, 0.9)


def _point(
    row: Mapping[str, Any],
    parameters: Mapping[str, Any],
    status: str,
    reason: str | None,
    metrics: Mapping[str, Metric],
) -> PointResult:
    label = ", ".join([row["model"].get("name") or f"l={row['model'].get('layers')}", row["hardware"]])
    series = row["id"].rpartition("-")[0]
    return PointResult(row["id"], series, label, parameters, status, reason, fingerprint(dict(row)), metrics)


def _not_described(row: Mapping[str, Any]) -> list[str]:
    """What a row has that no configuration or cluster here describes."""
    missing = [why for need, why in WORDS["technique"].items() if why and need in row.get("needs", [])]
    missing += filter(None, [WORDS["method"][row["layout"].get("method", "baseline")]])
    name = WORDS["hardware"][row["hardware"]]
    if not (CLUSTER_FOLDER / f"{name}.toml").is_file():
        missing.append(f"the cluster {name}")
    return missing


def configuration(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row's configuration, with today's programs' habits where neither the source nor its choices say anything.

    These are: flash attention, around a ring of context-parallel ranks, sequence parallelism with t > 1, whole experts
    on every tensor rank, as many tokens for each ('tokendrop': at most), multi-token prediction where the model's
    report has it (not 'w/o MTP'), the optimizer's state sharded with d*c > 1, b=1, v=1, as little recomputation as
    memory allows; of two stages more than layers, the first and the last have none. Adapters have rank 16, and samples
    packed into a sequence, whose lengths no source says, attend as one.

    Raises `UsageError` for a model that is not known by its name.
    """
    model, layout = dict(row["model"]), _layout(row)
    if "name" in model:
        name, _, drops = model.pop("name").lower().partition(" (")
        model = dict(with_model_fields({"model": re.sub("[ _]", "-", name), **model}))
        if drops.startswith("tokendrop"):
            model["capacity_factor"] = 1.0
        if drops.startswith("w/o mtp"):
            model["mtp_layers"] = 0
    if activation := WORDS["activation"].get(model.get("activation", "")):
        model["activation"] = activation
    entry = model | {ours: layout[theirs] for theirs, ours in WORDS["layout"].items() if theirs in layout}
    t, p, c = entry.setdefault("t", 1), entry.setdefault("p", 1), entry.get("c", 1)
    d = entry.setdefault("d", max(1, layout.get("gpus", 1) // (t * p * c)))
    if c > 1:
        entry["context_exchange"] = "ring"
    if entry.get("experts") and t > 1:
        entry.setdefault("etp", 1)
    recompute = layout.get("recompute", "auto")
    entry |= {"attention": "sdpa", "recompute": WORDS["recompute"].get(recompute, recompute)}
    if recompute == "per operator":
        entry["recompute_modules"] = "operators"
    if schedule := entry.get("schedule"):
        entry["schedule"] = WORDS["schedule"].get(schedule, schedule)
    if (recipe := WORDS["precision"][row["precision"]]) != "none":
        entry["fp8_recipe"] = recipe
    if layout.get("sharding") == "FULL_SHARD" or layout.get("fsdp", 0) > 1:
        entry["data_parallel"] = "zero3"
        if 0 < layout.get("fsdp", 0) < d * c:
            entry["zero3_shards"] = layout["fsdp"]
    else:
        if layout.get("sharding") == "SHARD_GRAD_OP":
            entry["data_parallel"] = "zero2"
        entry.setdefault("sharded_optimizer", d * c > 1)
    entry.setdefault("sequence_parallel", t > 1)
    entry |= {name: value for name, value in row.get("choices", {}).items() if name not in (SOFTWARE, PROGRAM)}
    if (layers := entry.get("layers")) == entry["p"] * entry.get("v", 1) - 2:
        entry["pipeline_layout"] = layout_of((0, *[1] * layers, 0))
    if "LoRA" in row.get("needs", []):
        entry.setdefault("lora_rank", 16)
    if (method := str(layout.get("method"))) in SHARED:
        entry["schedule"] = entry.get("schedule", default_schedule(1)) + SEPARATOR + method
    if method == "redistributed":
        entry["pipeline_layout"] = redistributed(TrainingConfig.from_plain(entry))
    return entry


def redistributed(config: TrainingConfig) -> str:
    """The layout whose last stage has as many layers fewer as the output is worth by its FLOPs, others as even as can.

    Of these the first have one less.
    """
    model, before = config.model, config.parallel.p - 1
    worth = logit_flops(model, 1) / (3 * layer_forward_flops(model, 1))
    last = max(0, round((model.layers + worth) / (before + 1) - worth))
    each, more = divmod(model.layers - last, before)
    return layout_of((*[each] * (before - more), *[each + 1] * more, last))


def seal(
    rows: Sequence[Any],
    file: Path,
    folder: Path,
    command: Sequence[str],
    started: datetime,
    program: str | None = None,
) -> Record:
    """Predict every row of a file, of a `program` where nothing names another, and write the record.

    Raises `UsageError`, before anything is written, for rows that will not do or a folder with a sealed record.
    """
    if any((folder / name).exists() for name in (RECORD, f"{RECORD}.gz")):
        raise UsageError(f"{folder / RECORD} is sealed and stays as it is; needs another folder")
    check(rows, str(file))
    if program:
        simulated.open_cluster("selene", program)  # what can be wrong, before any work
    points = tuple([predict(row, program) for row in rows])
    made = sum(bool(point.metrics) for point in points)
    clusters = sorted({str(point.parameters["cluster"]) for point in points if point.metrics})
    chosen = {row["why"]: row["id"].rpartition("-")[0] for row in rows if "why" in row}
    digest = sources_digest((*simulated.SOURCES, "reproduce/annex/accuracy/sealed.py"), None, simulated)
    record = Record(
        kind="comparison",
        id="sealed",
        title="Sealed predictions",
        paper=None,
        fidelity="simulated",
        scale="own",
        state="complete",
        provenance=collect(command, started, code_digest=digest),
        points=points,
        notes=(
            f"{made} of {len(points)} rows predicted; of the others the reason says what cannot be described.",
            f"The points file's SHA-256 is {digest_file(file)}.",
            f"Cluster files: {', '.join(f'{name} {simulated.open_cluster(name)[1].digest}' for name in clusters)}.",
            "An interval is that of open runs of the same class and program, of any program where none is named "
            "(docs/margins.md); on a cluster without such runs nine in ten of today's measured over predicted times.",
            " ".join((configuration.__doc__ or "").split("Raises")[0].split()),
            *(f"{source}: {why}" for why, source in chosen.items()),
        ),
    )
    require_folder(folder)
    write_record(record, folder / RECORD)
    return record

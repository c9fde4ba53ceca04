"""A training configuration of one's own, simulated: the answer of `reproduce simulate` and the page, as plain data."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ptdp_core.config import ModelConfig, TrainingConfig
from ptdp_core.errors import ConfigurationError
from ptdp_core.simulator import Cluster, Estimate, simulate, software_of
from ptdp_core.simulator.programs import load_program
from reproduce.experiment import margins
from reproduce.experiment.metrics import answers
from reproduce.experiment.sweep import check_keys
from reproduce.planning.advice import advice, to_try
from reproduce.planning.amounts import sequences
from reproduce.planning.models import find, with_model_fields
from reproduce.running.simulated import check_passes, named_cluster, oom_reason
from results.records.errors import UsageError

if TYPE_CHECKING:
    from reproduce.planning.run_cost import TrainingRun

LORA_FLOPS = "FLOPs and MFU are the whole model's, whose weight gradients adapters leave out"
PARTS = ("bubble_times", "phase_times", "memory_bytes", "traffic")  # of an estimate's numbers, by what they are for


def evaluate(
    entry: Any,
    number: int,
    cluster: str,
    debug: bool = False,
    program: str | None = None,
    *,
    run: "TrainingRun | None" = None,
    sensitivity: bool = False,
    checkpoint_rate: float | None = None,
    bubble_times: bool = True,
) -> dict[str, Any]:
    """The answer for one point of the file, as JSON; with what is asked of a whole run, and what limits it.

    With a `checkpoint_rate` in bytes a second its checkpoints stand there, too. Without `bubble_times`, whose schedules
    take two thirds of the time, these are empty.

    Raises `UsageError` for a run that gets nowhere.
    """
    label = f"point {number}"
    if isinstance(entry, dict) and isinstance(entry.get("label"), str):
        label = entry["label"]
    try:
        missing = f"not modelled: {left_out}" if (left_out := unmodelled(entry)) else ""
        config, model, packed = described(entry, cluster, program)
        estimate = simulate(config, model, bubble_times=bubble_times)
    except (ConfigurationError, UsageError) as error:
        return answer(label, "invalid", str(error))
    except Exception as error:
        if debug:
            raise
        return answer(label, "failed", f"internal error: {type(error).__name__}: {error}; --debug shows where")
    checkpoint = {}
    if checkpoint_rate is not None:
        from reproduce.planning import checkpoints

        checkpoint = {"checkpoint": checkpoints.document(config, model, checkpoint_rate)}
    doubt = margins.doubt_of_memory(estimate, model)
    sure = f"whether it fits is {doubt}" if doubt else ""
    if not estimate.fits:
        found = advice(estimate, model)
        reason = "; ".join(filter(None, (oom_reason(estimate, model), sure, missing, packed, to_try(found))))
        document = answer(label, "oom", reason, estimate, model) | further(estimate, model, None, sensitivity)
        return document | checkpoint | {"advice": [each.document() for each in found]}
    adapted = LORA_FLOPS if config.parallel.lora_rank else ""
    least = f"recompute={estimate.config.parallel.recompute!r} is the least that fits"
    reasons = (missing, adapted, packed, least if config.parallel.recompute == "auto" else "", sure)
    said = "; ".join(filter(None, reasons)) or None
    return answer(label, "ok", said, estimate, model) | checkpoint | further(estimate, model, run, sensitivity)


def configuration(entry: Any, cluster: str, program: str | None = None) -> tuple[TrainingConfig, Cluster]:
    """What a point describes, and its cluster with the program or the software that it names.

    Where it names none, these are of the names given. A named program fills in what the point leaves open; `software`
    replaces its switches. Raises `ConfigurationError` and `UsageError`.
    """
    config, model, _ = described(entry, cluster, program)
    return config, model


def described(entry: Any, cluster: str, program: str | None = None) -> tuple[TrainingConfig, Cluster, str]:
    """See `configuration`; and in words what became of samples of the `lengths` that the point has."""
    entry, own, packed = _with_sequences(with_model_fields(entry)), {}, ""
    if isinstance(entry, dict):
        entry = dict(entry)
        own = {key: entry.pop(key) for key in ("software", "lengths") if key in entry}
        program = entry.pop("program", program)
    if program is not None and isinstance(entry, dict):
        entry = load_program(program).with_defaults(entry)
    check_keys(entry)
    config = TrainingConfig.from_plain(entry)
    if "lengths" in own:
        from reproduce.planning import lengths

        config, packed = lengths.applied(config, lengths.read(own["lengths"]))
    check_passes(config)
    model = named_cluster(entry.get("cluster", cluster), program)
    if program is not None:
        load_program(program).check(config)
    if "software" in own:
        model = replace(model, software=software_of(own["software"]), program="")
    return config, model, packed


def unmodelled(entry: Any) -> str:
    """What of the model that a point names is not modelled at its length; '' if all is. Raises `UsageError`."""
    if not isinstance(entry, Mapping) or not isinstance(entry.get("model"), str):
        return ""
    seq = entry.get("seq")
    return find(entry["model"]).unmodelled(seq if isinstance(seq, int) else None)


def _with_sequences(entry: Any) -> Any:
    """The point with its batch in sequences, where it is a text such as '4M' tokens. Raises `UsageError`."""
    batch = entry.get("B") if isinstance(entry, dict) else None
    seq = entry.get("seq", ModelConfig.seq) if isinstance(entry, dict) else 0
    if isinstance(batch, str) and batch[-1:].isalpha() and isinstance(seq, int) and seq > 0:
        return entry | {"B": sequences(batch, seq)}
    return entry


def further(estimate: Estimate, cluster: Cluster, run: "TrainingRun | None", sensitivity: bool) -> dict[str, Any]:
    """What is asked of a configuration beyond its iteration: the whole run, and what limits it."""
    found: dict[str, Any] = {}
    if run is not None:
        from reproduce.planning import run_cost

        found["run"] = run_cost.document(estimate, cluster, run)
    if sensitivity:
        from reproduce.planning.elasticities import elasticities

        found["elasticities"] = elasticities(estimate, cluster)
    return found


def answer(
    label: str, status: str, reason: str | None, estimate: Estimate | None = None, cluster: Cluster | None = None
) -> dict[str, Any]:
    """A point's answer; without an estimate its numbers are null."""
    document: dict[str, Any] = {"label": label, "status": status, "reason": reason, "origin": "simulated"}
    document |= dict.fromkeys(
        ("cluster", "program", "gpus", *(metric.name for metric in answers()), *PARTS, "intervals")
    )
    if estimate is not None and cluster is not None:
        document |= {"cluster": estimate.cluster, "program": cluster.program or None}
        document["gpus"] = estimate.config.parallel.n
        values = {metric.name: metric.simulated(estimate, cluster) for metric in answers()}
        document |= values | {name: getattr(estimate, name) for name in PARTS}
        document["intervals"] = margins.of_values(values, estimate, cluster)
    return document

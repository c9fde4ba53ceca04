"""What to change about a configuration that does not fit in memory: the cheapest changes that do, each simulated."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations
from math import inf
from typing import Any

from ptdp_core.config import TrainingConfig
from ptdp_core.errors import ConfigurationError
from ptdp_core.schedules import exists
from ptdp_core.simulator import Cluster, Estimate, simulate
from ptdp_core.simulator.costs import cost_model
from ptdp_core.simulator.peak_memory import peak_memory
from reproduce.planning.cells import recomputations

SHOWN = 3
TOGETHER = 3  # changes at most
NO_ADVICE = "no three changes on these GPUs make it fit; try more GPUs"


@dataclass(frozen=True)
class Advice:
    """Fields with other values, by which it fits: its simulation, and how much longer an iteration takes."""

    fields: Mapping[str, Any]
    estimate: Estimate
    slower_by: float

    @property
    def words(self) -> str:
        """Such as 'sharded_optimizer=true: 42.0 GB, +0.4% time'."""
        changes = ", ".join(f"{name}={as_typed(value)}" for name, value in self.fields.items())
        return f"{changes}: {self.estimate.peak_memory / 1e9:.1f} GB, {self.slower_by:+.1%} time"

    def document(self) -> dict[str, Any]:
        """The same as plain data."""
        memory, seconds = self.estimate.peak_memory, self.estimate.iteration_time
        return {
            "fields": dict(self.fields),
            "peak_memory": memory,
            "iteration_time": seconds,
            "slower_by": self.slower_by,
        }


def to_try(found: Sequence[Advice]) -> str:
    """The changes in words, or that there are none."""
    return f"try {', or '.join(each.words for each in found)}" if found else NO_ADVICE


def as_typed(value: object) -> str:
    """A field's value as a command line has it: true, not True."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def advice(estimate: Estimate, cluster: Cluster) -> list[Advice]:
    """The fastest single changes on the same GPUs by which a configuration fits; if none do, the fastest pairs, ...

    Empty if no three changes do.
    """
    config, model = estimate.config, cost_model(cluster, estimate.config.parallel.n)
    single = []
    for values in _changes(config):
        fields = {name: value for name, value in values.items() if getattr(config.parallel, name) != value}
        changed = _with(config, fields)
        memory = inf if changed is None else peak_memory(changed, model)
        if memory < estimate.peak_memory:
            single.append((memory, fields))
    single.sort(key=lambda each: each[0])
    for number in range(1, TOGETHER + 1):
        # Of pairs and threes only those of what saves most by itself.
        kept = [fields for _, fields in single][: None if number == 1 else 10]
        found = []
        for group in combinations(kept, number):
            together = {name: value for fields in group for name, value in fields.items()}
            changed = _with(config, together) if len(together) == sum(map(len, group)) else None
            if changed is not None and peak_memory(changed, model) <= cluster.usable_memory:
                with suppress(ConfigurationError):  # what the program or the machine cannot do
                    other = simulate(changed, cluster)
                    found.append(Advice(together, other, other.iteration_time / estimate.iteration_time - 1))
        if found:
            return sorted(found, key=lambda each: each.slower_by)[:SHOWN]
    return []


def _with(config: TrainingConfig, fields: Mapping[str, Any]) -> TrainingConfig | None:
    try:
        return replace(config, parallel=replace(config.parallel, **fields))
    except ConfigurationError:
        return None


def _changes(config: TrainingConfig) -> Iterator[dict[str, Any]]:
    """What may save memory on the same GPUs with the same batch, if it is legal."""
    parallel = config.parallel
    if not parallel.sharded_optimizer:
        yield {"sharded_optimizer": True}
    yield {"data_parallel": "zero2", "sharded_optimizer": True}
    if parallel.p == 1:
        yield {"data_parallel": "zero3", "sharded_optimizer": False, "zero3_shards": 0}
    if parallel.t > 1:
        yield {"sequence_parallel": True}
    if parallel.writes_scores:
        yield {"attention": "sdpa"}
    if parallel.recompute != "full":
        techniques = ["modules", *(["sdpa"] if parallel.attention == "sdpa" else [])]
        plain = {"recompute_modules": "core_attn", "offload": "optimizer" if "optimizer" in parallel.offload else ""}
        for recomputed in recomputations(config.model, techniques):
            if recomputed["recompute"] != "none":
                yield plain | recomputed
        yield {"offload": "layers,optimizer" if "optimizer" in parallel.offload else "layers"}
    if "optimizer" not in parallel.offload:
        yield {"offload": ",".join(filter(None, (parallel.offload, "optimizer")))}
    yield from ({"b": parallel.b // k} for k in (2, 4, 8) if parallel.b % k == 0)
    for name in ("t", "p", "c", "e"):
        for k in (2, 4):
            fields = {name: k * getattr(parallel, name)}
            if name != "e":
                if parallel.d % k:
                    continue
                fields["d"] = parallel.d // k
            if name == "p" and not exists(parallel.schedule, fields["p"], parallel.m * k, parallel.v):
                continue
            yield fields

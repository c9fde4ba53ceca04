"""What a plan's search does not try, and what each of it would give: simulated on the best that was found.

The search varies layout, schedule and a few techniques. Left out are ZeRO-3, which takes the place of all model
parallelism, FP8, what a training program may do beyond that of the cluster's file (`ptdp_core/simulator/software.py`),
and the other values of fields that the search sets by themselves (`data_parallel`, `context_exchange`, ...).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import product
from typing import Any

from ptdp_core.config import ParallelConfig, TrainingConfig
from ptdp_core.errors import ConfigurationError
from ptdp_core.fields import choices
from ptdp_core.simulator import Cluster, Estimate, simulate
from reproduce.planning.space import TECHNIQUES, divisors

LEAST_GAIN = 0.005  # of the tokens per second: what gives less is no gain
FP8, DATA_PARALLEL, ZERO_3 = "fp8_recipe", "data_parallel", "zero3"
SEARCHED = (*TECHNIQUES, "schedule", "sharded_optimizer")


@dataclass(frozen=True)
class Untried:
    """One change that the search does not try: of the configuration's fields, of the program's switches, or of both.

    `faster_by` is the fraction of tokens per second more; `estimate` is None where it cannot be, and `why` says why.
    """

    what: str
    estimate: Estimate | None = None
    faster_by: float = 0.0
    fields: Mapping[str, Any] = field(default_factory=dict)
    software: Sequence[str] = ()
    why: str = ""

    @property
    def gains(self) -> bool:
        """Whether it is faster than what was found, and fits."""
        return self.estimate is not None and self.estimate.fits and self.faster_by >= LEAST_GAIN


def untried(best: Estimate, cluster: Cluster) -> list[Untried]:
    """What was not tried, the largest gain first; the last is all that gain and go together, if they are several.

    Of values of one field, and of layouts with ZeRO-3, the fastest that fits stands for all.
    """
    found = [*_switches(best, cluster), *_values(best, cluster)]
    gaining = [one for one in found if one.gains]
    together = []
    if len(gaining) > 1:
        values = {name: value for one in gaining for name, value in one.fields.items()}
        switches = [switch for one in gaining for switch in one.software]
        together = [_tried(best, cluster, "these together", values, switches)]
    ranked = sorted((_zero_3(best, cluster), *found), key=lambda one: -one.faster_by)
    return [*ranked, *(one for one in together if one.gains)]


def sentence(found: Sequence[Untried]) -> str:
    """What was not tried, and what it would give, on one line."""
    gains = [
        f"{one.what} {one.faster_by:+.1%} ({one.estimate.iteration_time:.3f} s)"
        for one in found
        if one.estimate and one.gains
    ]
    others = [f"{one.what} ({one.why or format(one.faster_by, '+.1%')})" for one in found if not one.gains]
    told = f"NOT TRIED by the search, here simulated on rank 1, tokens/s: {', '.join(gains) or 'nothing gains'}"
    return told + (f"; no gain: {', '.join(others)}" if others else "")


def document(found: Sequence[Untried]) -> list[dict[str, Any]]:
    """The same as plain data."""
    return [
        {
            "change": one.what,
            "fields": dict(one.fields),
            "software": list(one.software),
            "iteration_time": one.estimate.iteration_time if one.estimate else None,
            "faster_by": one.faster_by if one.estimate else None,
            "fits": one.estimate.fits if one.estimate else False,
        }
        for one in found
    ]


def _tried(
    best: Estimate, cluster: Cluster, what: str, values: Mapping[str, Any], switches: Sequence[str] = ()
) -> Untried:
    """The best configuration with these values of fields and these switches on."""
    plain = asdict(best.config.model) | asdict(best.config.parallel) | dict(values)
    software = replace(cluster.software, **dict.fromkeys(switches, True))
    try:
        estimate = simulate(TrainingConfig.from_plain(plain), cluster, software)
    except ConfigurationError as error:
        return Untried(what, fields=values, software=switches, why=str(error).partition("; needs")[0])
    faster_by = estimate.sequences_per_s / best.sequences_per_s - 1
    why = "" if estimate.fits else "does not fit"
    return Untried(what, estimate, faster_by, values, switches, why)


def _switches(best: Estimate, cluster: Cluster) -> Iterator[Untried]:
    """What a training program may do beyond the cluster's, if it makes anything faster; the rest are other machines."""
    for name, on in vars(cluster.software).items():
        if not on and (one := _tried(best, cluster, name, {}, [name])).gains:
            yield one


def _values(best: Estimate, cluster: Cluster) -> Iterator[Untried]:
    """The fields with a choice that the search does not vary: the fastest other value of each, if any is possible."""
    offered = choices(ParallelConfig)
    for item in fields(ParallelConfig):
        name, now = item.name, getattr(best.config.parallel, item.name)
        values = (True, False) if isinstance(now, bool) else offered.get(name, ())
        others = [value for value in values if value not in (now, ZERO_3)] if name not in SEARCHED else []
        tried = [_tried(best, cluster, _words(name, value), {name: value}) for value in others]
        possible = [one for one in tried if one.estimate is not None and (one.gains or name == FP8)]
        if possible:
            yield max(possible, key=lambda one: (one.gains, one.faster_by))
        elif name == FP8:
            yield Untried("FP8", why=f"none on {cluster.name}")


def _words(name: str, value: object) -> str:
    return f"FP8 ({value})" if name == FP8 else f"{name}={str(value).lower()}"


def _zero_3(best: Estimate, cluster: Cluster) -> Untried:
    """ZeRO-3 on all GPUs: the fastest that fits of its microbatch sizes, recomputations and attentions."""
    parallel = best.config.parallel
    if parallel.B % parallel.n:
        return Untried("ZeRO-3", why=f"{parallel.n} GPUs do not divide the batch")
    layout = {"p": 1, "t": 1, "c": 1, "v": 1, "e": 1, "etp": 0, "d": parallel.n, "schedule": "", "pipeline_layout": ""}
    layout |= {DATA_PARALLEL: ZERO_3, "sharded_optimizer": False, "sequence_parallel": False}
    tried = [
        _tried(best, cluster, "ZeRO-3", layout | {"b": b, "recompute": recompute, "attention": attention})
        for b, recompute, attention in product(
            divisors(parallel.B // parallel.n), TECHNIQUES["recompute"], TECHNIQUES["attention"]
        )
    ]
    return max(tried, key=lambda one: (one.estimate is not None and one.estimate.fits, one.faster_by))

"""What a plan's search may use, and what each of the rest would give: simulated on the best that was found.

By default it may use all `TECHNIQUES`, and of the training program what the cluster's file has on, with experts also
what programs of today have (`DISPATCH`). `--allow` adds FP8 recipes and offloading (`ON_REQUEST`) and switches by
name, `--forbid` takes any of these away, and so does what the program lacks.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ptdp_core.config import ModelConfig, TrainingConfig
from ptdp_core.errors import ConfigurationError
from ptdp_core.simulator import PAPER, Cluster, Estimate, simulate
from ptdp_core.simulator.programs import load_program
from reproduce.planning.cells import FIELDS, OFFLOADS, ON_REQUEST, RECIPES, TECHNIQUES, Techniques
from results.records.errors import UsageError, did_you_mean

LEAST_GAIN = 0.005  # of the tokens per second: what gives less is no gain
FP8 = "fp8"
DISPATCH = ("deduplicated_dispatch", "overlapped_exchange")
SWITCHES = tuple(vars(PAPER))
NAMES = (*TECHNIQUES, *ON_REQUEST, FP8, *SWITCHES)


def may_use(
    cluster: Cluster, model: ModelConfig, allow: Iterable[str] = (), forbid: Iterable[str] = ()
) -> tuple[Cluster, Techniques]:
    """The cluster with the program's switches as they are asked for, and the names of what a search may use.

    'fp8' are all recipes in FP8. Raises `UsageError` for an unknown name, and for one that the cluster cannot do.
    """
    recipes = _recipes(cluster)
    named = [
        (option, name)
        for option, names in (("allow", allow), ("forbid", forbid))
        for each in names
        for name in (recipes or [FP8] if each == FP8 else [each])
    ]
    for option, name in named:
        if name not in NAMES:
            hint = did_you_mean(name, NAMES) or f"; needs some of {', '.join(NAMES)}; try --{option} {FP8}"
            raise UsageError(f"--{option} {name!r} is unknown{hint}")
        if option == "allow" and name in OFFLOADS and not cluster.host_bandwidth:
            raise UsageError(f"--allow {name} on {cluster.name}, whose file has no host_bandwidth; needs it; try h100")
        if option == "allow" and name in (FP8, *RECIPES) and name not in recipes:
            raise UsageError(f"--allow {name} on {cluster.name}, whose GPU has none; needs another cluster; try h100")
    given = {name: option == "allow" for option, name in named}
    of_today = dict.fromkeys(DISPATCH, True) if cluster.software.fsdp and model.experts else {}
    switches = of_today | {name: on for name, on in given.items() if name in SWITCHES}
    lacks = load_program(cluster.program).lacks if cluster.named else {}
    techniques = [
        name
        for name in (*TECHNIQUES, *ON_REQUEST)
        if given.get(name, name in TECHNIQUES) and lacks.keys().isdisjoint(FIELDS[name])
    ]
    return replace(cluster, software=replace(cluster.software, **switches)), techniques


def _recipes(cluster: Cluster) -> list[str]:
    peaks = {"nvfp4": cluster.fp4_peak_flops}
    return [name for name in RECIPES if peaks.get(name, cluster.fp8_peak_flops)]


@dataclass(frozen=True)
class Untried:
    """One thing that the search did not try: fields of the configuration that are others, or a switch of the program.

    `faster_by` is the fraction of tokens per second more; `estimate` is None where it cannot be, and `why` says why.
    """

    what: str
    estimate: Estimate | None = None
    faster_by: float = 0.0
    fields: Mapping[str, Any] = field(default_factory=dict)
    software: Sequence[str] = ()
    why: str = ""

    @property
    def words(self) -> str:
        """It with what a recipe is: '--allow delayed (FP8, delayed scaling)'."""
        recipe = self.fields.get("fp8_recipe")
        return f"{self.what} ({RECIPES[recipe]})" if recipe else self.what

    @property
    def gains(self) -> bool:
        """Whether it is faster than what was found, and fits."""
        return self.estimate is not None and self.estimate.fits and self.faster_by >= LEAST_GAIN


def untried(best: Estimate, cluster: Cluster, techniques: Techniques) -> list[Untried]:
    """What was not tried, the largest gain first: FP8's best recipe, and switches of the program that gain."""
    recipes = [name for name in _recipes(cluster) if name not in techniques]
    narrow = [_tried(best, cluster, f"--allow {name}", {"fp8_recipe": name}) for name in recipes]
    switches = [name for name in SWITCHES if not getattr(cluster.software, name)]
    others = (_tried(best, cluster, f"--allow {name}", {}, [name]) for name in switches)
    found = [*sorted(narrow, key=lambda one: (-one.gains, -one.faster_by))[:1], *(one for one in others if one.gains)]
    return sorted(found, key=lambda one: -one.faster_by)


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


def sentence(found: Sequence[Untried], techniques: Techniques) -> str:
    """What was not tried, and what it would give, on one line."""
    return "; ".join(_clauses(found, techniques))


def _clauses(found: Sequence[Untried], techniques: Techniques) -> Iterator[str]:
    gains = [
        f"{one.words} {one.faster_by:+.1%} ({one.estimate.iteration_time:.3f} s)"
        for one in found
        if one.estimate and one.gains
    ]
    others = [f"{one.words} ({one.why or format(one.faster_by, '+.1%')})" for one in found if not one.gains]
    yield f"NOT TRIED by the search, here simulated on rank 1, tokens/s: {', '.join(gains) or 'nothing gains'}"
    if others:
        yield f"no gain: {', '.join(others)}"
    if missing := [name for name in TECHNIQUES if name not in techniques]:
        yield f"forbidden, or not what the program has: {', '.join(missing)}"


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

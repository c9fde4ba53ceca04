"""The ledger: training iterations that others measured, on other clusters, as the simulator predicts them.

None of these values set a parameter of the simulator, but for some of Qwen3's, as its study says. `ledger()` gives
everything as plain data, study by study.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from pandas import DataFrame, Series, concat

from ptdp_core.config import TrainingConfig
from ptdp_core.formulas import flops_per_iteration
from ptdp_core.schedules import build, stash_fronts
from ptdp_core.simulator import Cluster, Software, load_cluster, simulate
from ptdp_core.simulator.peak_memory import rank_memories
from reproduce.annex.accuracy.scores import Score, compared, score
from reproduce.experiment.margins import read

FILE = Path(__file__).with_name("ledger.json")
GIB = 2**30
# The studies of today's programs on A100, H100 and B200.
TODAY = ("dgxc_h100", "mosaic_a100_80", "mosaic_h100", "zero_bubble_a100", "simumax_b200")
# Runs with context parallelism, by cluster.
CONTEXT = {"h100": "dgxc_h100_context", "b200": "simumax_b200_context"}
TEXTS = ("id", "program", "title", "source", "measured", "cluster", "caveat")


@dataclass(frozen=True)
class Study:
    """What one source measured, of one cluster and program; `caveat` says what is not modelled or not known.

    `points` has a row per training iteration: `label` (the source's, or the configuration in the paper's letters),
    `config`, `cluster` and `software`, which are the study's unless a point has its own, `iteration_time` in s, as
    published or from what is published per GPU (teraFLOP/s by eq. 3, tokens/s, sequences/s), and `published_bytes`,
    None if there is no memory: of a GPU of the first pipeline rank as the driver reports it, or if `allocated` what the
    program has allocated on the fullest GPU.

    `alternative` are settings that may as well have been used, where the source does not say: scored beside. `again`
    says that the points are those of another study, on another cluster. `named` is what people call the program, where
    its runs test a cluster's margins.
    """

    id: str
    program: str
    title: str
    source: str
    measured: str
    cluster: str
    caveat: str
    software: Software
    points: DataFrame
    alternative: Mapping[str, Any]
    again: bool = False
    named: str = ""

    def with_alternative(self) -> "Study":
        """The same study with the settings of `alternative` in every configuration."""
        configs = [
            TrainingConfig.from_plain({**config.to_plain(), **self.alternative}) for config in self.points.config
        ]
        return replace(self, points=self.points.assign(config=configs))


@cache
def studies() -> tuple[Study, ...]:
    """All studies, in the file's order."""
    return tuple(
        Study(
            **{name: entry[name] for name in TEXTS},
            software=Software(**entry["software"]),
            points=DataFrame([_point(point, entry) for point in _points(entry)], dtype=object),  # bytes stay whole
            alternative=entry.get("alternative", {}),
            again="points_of" in entry,
            named=entry.get("named", ""),
        )
        for entry in _document()["studies"]
    )


def _points(entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A study's points, which may be those of another one (`points_of`)."""
    of = entry.get("points_of", entry["id"])
    points: list[dict[str, Any]] = next(each["points"] for each in _document()["studies"] if each["id"] == of)
    return points


@cache
def _document() -> Any:
    return json.loads(FILE.read_text(encoding="utf-8"))


def _point(entry: Mapping[str, Any], study: Mapping[str, Any]) -> dict[str, Any]:
    config = TrainingConfig.from_plain(entry["config"])
    model, parallel = config.model, config.parallel
    gib = entry.get("memory_gib_first_rank", entry.get("allocated_gib"))
    return {
        "label": entry.get("label")
        or f"l={model.layers} h={model.hidden} a={model.heads} "
        f"p={parallel.p} t={parallel.t} d={parallel.d} b={parallel.b} B={parallel.B}",
        "config": config,
        "cluster": entry.get("cluster", study["cluster"]),
        "software": Software(**entry.get("software", study["software"])),
        "iteration_time": _seconds(entry, config),
        "published_bytes": None if gib is None else gib * GIB,
        "allocated": "allocated_gib" in entry,
    }


def _seconds(entry: Mapping[str, Any], config: TrainingConfig) -> float:
    """The published seconds of an iteration, or those that follow from what is published per GPU."""
    B, n = config.parallel.B, config.parallel.n
    amounts = {
        "tflops_per_gpu": flops_per_iteration(config.model, B) / 1e12,
        "tokens_per_s_per_gpu": B * config.model.seq,
        "sequences_per_s_per_gpu": B,
    }
    rates = (amount / n / entry[name] for name, amount in amounts.items() if name in entry)
    return float(entry["iteration_s"]) if "iteration_s" in entry else next(rates)


def predicted(study: Study, cluster: Cluster | None = None) -> DataFrame:
    """A study's points on their clusters or the one given, with our `seconds`, and `bytes` where any are published."""
    clusters = [cluster or load_cluster(name) for name in study.points.cluster]
    ours = [
        (
            simulate(point.config, where, point.software).iteration_time,
            None if point.published_bytes is None else published_kind_of_bytes(point, where),
        )
        for point, where in zip(study.points.itertuples(), clusters, strict=True)
    ]
    seconds, sizes = zip(*ours, strict=True)
    return study.points.assign(seconds=seconds, bytes=Series(sizes, dtype=object))


def throughput_score(points: DataFrame) -> dict[str, Any]:
    """The score of predicted points, and the median error: an error of +0.1 is a prediction 10% too fast."""
    speeds = compared(points[["label"]].assign(ours=1 / points.seconds, paper=1 / points.iteration_time.astype(float)))
    return {**vars(score(speeds)), "median": float(speeds.error.abs().median())}


def measured_over_predicted(study: Study) -> Series:
    """A study's measured iteration times over the predicted ones."""
    points = predicted(study)
    return points.iteration_time.astype(float) / points.seconds


@cache
def range_of_today() -> tuple[float, float]:
    """Where nine in ten of `TODAY`'s measured iteration times lie, over the predicted ones: lower and upper end."""
    values = concat([measured_over_predicted(study) for study in studies() if study.id in TODAY])
    return values.quantile(0.05), values.quantile(0.95)


def memory_score(points: DataFrame) -> Score | None:
    """The score of memory, where it is published; None if it is nowhere."""
    known = points.dropna(subset="published_bytes")
    sizes = known[["label"]].assign(ours=known.bytes.astype(float), paper=known.published_bytes.astype(float))
    return None if known.empty else score(compared(sizes))


def published_kind_of_bytes(point: Any, cluster: Cluster) -> float:
    """Memory of a study's point as its source counts it.

    That is what a GPU of the first pipeline rank has in use at its fullest, as the driver reports it, or what the
    program has allocated on the fullest GPU, without what PyTorch's allocator leaves unused.
    """
    if not point.allocated:
        return _bytes_by_rank(point, cluster)[0] + cluster.memory_reserved
    return max(_bytes_by_rank(point, replace(cluster, allocator_efficiency=1.0)))


def _bytes_by_rank(point: Any, cluster: Cluster) -> list[int]:
    config, parallel = point.config, point.config.parallel
    # A schedule holds its most activations within the first few rounds of p microbatches.
    microbatches = min(parallel.m, 4 * parallel.p)
    moments = stash_fronts(build(parallel.schedule, parallel.p, microbatches, parallel.v))
    return [sum(memory.values()) for memory in rank_memories(config, cluster, moments, point.software)]


def ledger(paper: Mapping[str, Score] | None = None, fits: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Every study with its score and its points, and other simulators' scores: what JSON can hold, in base units.

    `paper` are our scores on the paper's own figures and tables, by their names ("Figure 11"), to stand beside those of
    other simulators. `fits` are the rows of `reproduce.annex.accuracy.fits.score`.
    """
    entries = {study.id: _as_plain(study) for study in studies()}
    known = {name: vars(score) for name, score in (paper or {}).items()}
    ours = {**known, **{id: entry["score"] for id, entry in entries.items()}}
    return {
        "origin": "simulated",
        "studies": list(entries.values()),
        "paper": known,
        "fits": list(fits),
        "others": _document()["others"],
        "other_scores": [_beside(entry, ours) for entry in _document()["other_scores"]],
    }


def _beside(entry: Mapping[str, Any], ours: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Another simulator's score with ours, the mean error over `ours_points` of the same rows, if there are any."""
    score = ours.get(entry.get("study", entry["on"]), {})
    return {**entry, "ours": score.get("mean"), "ours_points": score.get("n")}


def _as_plain(study: Study) -> dict[str, Any]:
    points, margins = predicted(study), read("selene")
    memory = memory_score(points)
    alternative = study.alternative and {
        "settings": study.alternative,
        "score": throughput_score(predicted(study.with_alternative())),
    }
    return {
        **{name: getattr(study, name) for name in TEXTS},
        "software": [name for name, on in vars(study.software).items() if on],
        "score": throughput_score(points),
        "alternative": alternative or None,
        "inside_margin": margins and _inside(points, margins.throughput.factor),
        "memory": memory and vars(memory),
        "points": [
            {
                "label": point.label,
                "config": point.config.to_plain(),
                "iteration_time": {"ours": point.seconds, "published": point.iteration_time},
                "error": point.iteration_time / point.seconds - 1,
                **_memory(point),
            }
            for point in points.itertuples()
        ],
    }


def _memory(point: Any) -> dict[str, Any]:
    """A point's memory by what it is of; None where it is not published."""
    sizes = point.bytes and {"ours": point.bytes, "published": point.published_bytes}
    return {
        "first_rank_bytes": None if point.allocated else sizes,
        "allocated_bytes": sizes if point.allocated else None,
    }


def _inside(points: DataFrame, factor: float) -> float:
    """The share of times inside the margin of simulated times on the paper's cluster."""
    return float((points.iteration_time / points.seconds).between(1 / factor, factor).mean())

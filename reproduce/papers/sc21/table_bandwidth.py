"""Section 5.9: effective bisection bandwidths of the trillion-parameter run, from byte counts over times."""

from collections.abc import Mapping

from ptdp_core.formulas import ring_factor
from ptdp_core.layout import RankGrid, boundary_transfers, rank_elements
from ptdp_core.simulator import Cluster, Estimate, read_parameters
from ptdp_core.simulator.kernels import FP16_BYTES
from reproduce.experiment.claims import Judgement, holds_if
from reproduce.experiment.results import Results
from reproduce.experiment.sweep import Level, Point, Sweep
from reproduce.experiment.told import told
from reproduce.papers.shared import paper_models
from results.records import Number

ID = "table_bandwidth"
BANDWIDTH, BYTES, SECONDS, WHOLE = "bisection_bandwidth", "bisection_bytes", "bisection_time", "whole_iteration"
CROSSINGS = "crossings"
PIPELINE, DATA = "pipeline point-to-point", "data-parallel all-reduce"
FACTOR = 2.0  # how far a reading of an undefined quantity may be away


def further(point: Point, estimate: Estimate, cluster: Cluster) -> dict[str, float]:
    """Bytes over the bisection in an iteration, over the seconds of that kind of communication."""
    read = _pipeline if point.parameters["traffic"] == PIPELINE else _data
    crossings, sent, seconds = read(estimate)
    return {
        BANDWIDTH: sent / seconds,
        BYTES: sent,
        SECONDS: seconds,
        CROSSINGS: crossings,
        WHOLE: sent / estimate.iteration_time,
    }


def _pipeline(estimate: Estimate) -> tuple[int, float, float]:
    """The cut between the two halves of the stages: chains across it, bytes both ways, seconds at one boundary.

    Every boundary that two stages exchange over has two ends; the time all ranks spend exchanging is shared by them.
    """
    config, parallel = estimate.config, estimate.config.parallel
    grid = RankGrid.of(parallel)
    elements = config.model.seq * parallel.b * config.model.hidden
    stages = parallel.p * parallel.v

    def half(stage: int) -> bool:
        return 2 * parallel.placement.ranks[stage] < parallel.p

    cuts = [stage for stage in range(stages - 1) if half(stage) != half(stage + 1)]
    transfers = [
        transfer
        for stage in cuts
        for dp in range(parallel.d)
        for transfer in boundary_transfers(
            grid, *parallel.placement.boundaries[stage], dp, elements, parallel.scatter_gather
        )
    ]
    # An activation one way and its gradient the other, for every microbatch.
    sent = 2 * parallel.m * FP16_BYTES * sum(transfer.elements for transfer in transfers)
    ends = 2 * (stages - 1) / len(cuts)
    return len(transfers), sent, parallel.p * estimate.phase_times["pipeline_communication"] / ends


def _data(estimate: Estimate) -> tuple[int, float, float]:
    """The cut between the two halves of the replicas: rings across it (twice each), bytes, seconds.

    A ring's all-reduce sends 2(d-1)/d of a GPU's fp16 gradients over each of its links.
    """
    config, parallel = estimate.config, estimate.config.parallel
    grid = RankGrid.of(parallel)
    elements = rank_elements(config)
    crossings, sent = 0, 0.0
    for ring in grid.groups("dp"):
        halves = [2 * grid.coordinates(rank)["dp"] < parallel.d for rank in ring]
        here = sum(half != halves[i - 1] for i, half in enumerate(halves))
        crossings += here
        sent += here * 2 * ring_factor(parallel.d) * FP16_BYTES * elements[grid.coordinates(ring[0])["pp"]]
    return crossings, sent, estimate.phase_times["data_parallel"]


SECTION = "Section 5.9"


def set_with_these() -> Mapping[str, float]:
    """The parameters of Selene's data file that were set with this section's numbers, or whose source quotes them."""
    parameters = read_parameters("selene").items()
    return {name: p.value for name, p in parameters if ID in p.set_with or SECTION in p.source}


def notes(results: Results) -> tuple[str, ...]:
    """The definitions, and what was set with these numbers."""
    chains, rings = (results.value(key, CROSSINGS) for key in ("pipeline", "data"))
    given = ", ".join(set_with_these()) or "none"
    return (
        f"Pipeline: the cut between the first and the last half of the stages; {chains:.0f} chains (d*t) of GPUs cross "
        "it once. Bytes: every microbatch's activation and gradient, 1/t on each chain, both directions added. Time: "
        "what the GPUs at one boundary spend in its exchanges, by the simulator's account without waiting: messages, "
        "host and all-gather.",
        f"Data parallelism: the cut between two halves of the replicas; the p*t rings of d GPUs cross it {rings:.0f} "
        "times, twice each. Bytes: 2(d-1)/d of a GPU's fp16 gradients over each link. Time: the data-parallel phase, "
        "mean over pipeline ranks, with the copies into and out of the flat buffer.",
        f"Simulator parameters that were set with this section's numbers: {given}. Agreement there is no evidence.",
    )


TRAFFIC = (Level(PIPELINE, "pipeline", {"traffic": PIPELINE}), Level(DATA, "data", {"traffic": DATA}))

ARTIFACT = told(
    __name__,
    sweeps={"paper": Sweep(x=TRAFFIC, paper=ID, **paper_models.table_1()[-1].parameters)},
    further=further,
    notes=notes,
)


def _compare(results: Results, key: str) -> tuple[float, float, float, dict[str, Number]]:
    """Ours, the paper's, the ratio of both, and the numbers to keep."""
    ours, paper = results.value(key, BANDWIDTH), results.point(key).paper[BANDWIDTH].value
    return ours, paper, ours / paper, results.numbers("B/s", ours=ours) | results.numbers(ratio=ours / paper)


@ARTIFACT.judge
def data_bisection(results: Results) -> Judgement:
    ours, paper, ratio, numbers = _compare(results, "data")
    text = f"{ours / 1e12:.1f} TB/s by our definition, {ratio:.2f} times {paper / 1e12:.1f} TB/s"
    if given := set_with_these():
        names = ", ".join(f"{name} = {value / 1e9:g} GB/s" for name, value in given.items())
        return Judgement("inconclusive", f"{text}; no evidence: {names} was set with this number", numbers)
    return holds_if(1 / FACTOR <= ratio <= FACTOR, text, numbers)

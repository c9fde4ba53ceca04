"""A training step as the traces of its ranks show it: a timeline, bubble and time by phase, in an `Estimate`'s terms.

Waiting is what a pipeline rank neither computes nor communicates, from the first pass of any rank to the step's end. Of
the time between two passes that a message fills, the part counts as waiting in which the other end was still busy with
the pass before; after a rank's last pass it is the time until the last rank has finished its own, without the
optimizer and the collectives that ended by then.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum
from pathlib import Path
from typing import Any

from ptdp_core.config import ParallelConfig
from ptdp_core.layout import RankGrid
from ptdp_core.schedules import (
    Action,
    Message,
    StagePlacement,
    build,
    message_into,
    message_out_of,
)
from ptdp_core.simulator import Cluster, Estimate
from reproduce.annex.explain import nsys
from reproduce.annex.explain.kineto import Span, TraceFile, merged, read
from reproduce.annex.explain.traced_communication import DATA, EXCHANGE, TENSOR
from reproduce.annex.explain.traced_step import RankStep, rank_step
from reproduce.output.timeline import Timeline, titled
from reproduce.planning.time_shares import time_shares
from results import opening
from results.records.errors import UsageError

# What a step's time is spent on.
PHASES = {
    "forward": "forward passes",
    "backward": "backward passes, with recomputation",
    "pipeline_communication": "pipeline communication, exposed",
    "bubble": "bubble: waiting of the pipeline",
    "data_parallel": "data-parallel communication, exposed",
    "optimizer": "optimizer",
    "host": "host, and all else",
}
# Of the passes: communication that no computation hides, by phase its axis and what people call it.
OF_PASSES = {
    "tensor_communication": (TENSOR, "tensor-parallel communication"),
    "exchange_communication": (EXCHANGE, "exchange of experts or context"),
}


@dataclass(frozen=True)
class StepProfile:
    """One training step: `phases` in seconds, means over ranks (those of `PHASES` add up to `seconds`; with
    `OF_PASSES`), `bubble_fraction` as `Estimate.bubble_fraction`, and the timeline of one rank of each stage.

    `host_gaps` is the part of the bubble in which a rank's input was there: it waited for its host, not for a message.
    `notes` say what the traces do not name, and what it was taken for.
    """

    step: int
    ranks: int
    world: int
    seconds: float
    phases: Mapping[str, float]
    host_gaps: float
    bubble_fraction: float
    timeline: Timeline
    counted: bool
    notes: tuple[str, ...]


def profile_step(paths: Sequence[Path], parallel: ParallelConfig | None = None, step: int | None = None) -> StepProfile:
    """The step that the traces in these files show, the last that all of them hold unless it is given.

    `parallel` names passes whose ranges do not. Raises `UsageError` for files that are no traces of one step, and where
    a pipeline rank is missing.
    """
    files = [file for path in paths for file in _files(path)]
    common = set.intersection(*(set(file.steps) for file in files))
    if not common:
        raise UsageError(f"{paths[0]} and the other traces have no step in common; needs traces of one run")
    if step is not None and step not in common:
        raise UsageError(f"--step {step} is not in all traces; there are {', '.join(map(str, sorted(common)))}")
    chosen = max(common) if step is None else step
    pipelined = parallel is None or parallel.p > 1
    ranks = [rank_step(file, rank, chosen, pipelined) for rank, file in sorted(_by_rank(files).items())]
    notes = tuple(dict.fromkeys(note for rank in ranks for note in rank.notes))
    counted = any(event.action is None for rank in ranks for event in rank.passes)
    pipeline = _pipeline(ranks, parallel)
    if counted:
        ranks = [_named(rank, pipeline[rank.rank], parallel) for rank in ranks]
    placement = _placement(ranks, pipeline)
    m = 1 + max(event.action.microbatch for rank in ranks for event in rank.passes if event.action)
    _check_whole(ranks, placement, m, parallel)
    start = min(rank.passes[0].start for rank in ranks)
    rows = [next(rank for rank in ranks if pipeline[rank.rank] == pp) for pp in range(placement.p)]
    step_end = max(_end(rank) for rank in ranks)
    last = max(rank.passes[-1].end for rank in ranks)
    parts = [
        _parts(rank, _both_ready(rank, ranks, pipeline, placement, start), placement, start, last, step_end)
        for rank in ranks
    ]
    mean = {name: fsum(part[name] for part in parts) / len(parts) for name in parts[0]}
    seconds = max(step_end - start, *(rank.step[1] - rank.step[0] for rank in ranks))
    gaps = mean.pop("gaps")
    mean["host"] = seconds - fsum(mean[name] for name in PHASES if name != "host")
    bubble = mean["bubble"] / (mean["forward"] + mean["backward"])
    events = tuple(tuple(e._replace(start=e.start - start, end=e.end - start) for e in row.passes) for row in rows)
    name = f"{titled(parallel)}, measured" if parallel else "measured"
    timeline = Timeline(name, placement, m, "s", events, (), bubble, "measured: torch.profiler")
    world = max(file.world or 0 for file in files) or len(files)
    return StepProfile(chosen, len(ranks), world, seconds, mean, gaps, bubble, timeline, counted, notes)


def _files(path: Path) -> list[TraceFile]:
    """The traces in a file: of Nsight Systems one for each process, of torch.profiler one."""
    if path.is_file():
        with opening.open_regular(path) as file:
            if file.read(len(nsys.HEADER)) == nsys.HEADER:
                return nsys.read(path)
    return [read(path)]


def document(profile: StepProfile, estimate: Estimate | None, cluster: Cluster | None) -> dict[str, Any]:
    """Both as plain data; without an `Estimate` what is simulated is null."""
    measured = {"bubble_fraction": profile.bubble_fraction, "seconds": profile.seconds, "phases": profile.phases}
    simulated = None
    if estimate is not None and cluster is not None:
        phases = simulated_phases(estimate, cluster)
        simulated = {"bubble_fraction": estimate.bubble_fraction, "seconds": estimate.iteration_time, "phases": phases}
    return {
        "step": profile.step,
        "ranks": profile.ranks,
        "world": profile.world,
        "named_passes": not profile.counted,
        "host_gaps": profile.host_gaps,
        "notes": list(profile.notes),
        "cluster": estimate.cluster if estimate else None,
        "measured": measured,
        "simulated": simulated,
    }


def simulated_phases(estimate: Estimate, cluster: Cluster) -> dict[str, float]:
    """The same phases of an `Estimate` with a timeline."""
    phases, p = estimate.phase_times, len(estimate.timeline)
    passes = {
        kinds: fsum(e.end - e.start for row in estimate.timeline for e in row if e.kind in kinds) / p
        for kinds in ("F", "BIW")
    }
    fetching = phases["host"] - cluster.iteration_host_time  # the beginning of the first stage's forward passes
    own = {"forward": passes["F"] - fetching, "backward": passes["BIW"]}
    rest = {name: phases[name] for name in PHASES if name not in own}
    shares = time_shares(estimate, cluster)
    exchange = shares["context-parallel communication"] + shares["expert-parallel communication"]
    within = {"tensor_communication": shares["tensor-parallel communication"], "exchange_communication": exchange}
    return own | rest | within


def _by_rank(files: Sequence[TraceFile]) -> dict[int, TraceFile]:
    by_rank: dict[int, TraceFile] = {}
    for number, file in enumerate(files):
        rank = number if file.rank is None else file.rank
        if rank in by_rank:
            raise UsageError(f"{file.path} and {by_rank[rank].path} are both of rank {rank}; needs one trace of a rank")
        by_rank[rank] = file
    return by_rank


def _pipeline(ranks: Sequence[RankStep], parallel: ParallelConfig | None) -> dict[int, int]:
    """The pipeline rank of each rank: by the configuration, else by the stages that its passes name, else in turn."""
    if parallel is not None:
        grid = RankGrid.of(parallel)
        if ranks[-1].rank >= grid.n:
            raise UsageError(f"a trace of rank {ranks[-1].rank}, but the configuration has {grid.n} ranks, from 0 on")
        return {rank.rank: grid.coordinates(rank.rank)["pp"] for rank in ranks}
    stages = {rank.rank: tuple(sorted({e.action.stage for e in rank.passes if e.action})) for rank in ranks}
    if all(stages.values()):
        order = sorted(set(stages.values()))
        return {rank: order.index(own) for rank, own in stages.items()}
    alone = not any(rank.messages for rank in ranks)
    return {rank.rank: 0 if alone else number for number, rank in enumerate(ranks)}


def _named(rank: RankStep, pp: int, parallel: ParallelConfig | None) -> RankStep:
    """The rank with an action for each pass: those of the configuration's schedule, else counted, with one stage."""
    kinds = [event.kind for event in rank.passes]
    if parallel is None:
        actions = [Action(kind, pp, kinds[:place].count(kind)) for place, kind in enumerate(kinds)]
    else:
        actions = list(build(parallel.schedule, parallel.p, parallel.m, parallel.v).ranks[pp])
        if [action.kind for action in actions] != kinds:
            raise UsageError(
                f"rank {rank.rank} has {kinds.count('F')} forward and {kinds.count('B')} backward passes in its trace, "
                f"not the configuration's {len(actions)} passes in their order; needs the configuration that was run"
            )
    passes = (event._replace(action=action) for event, action in zip(rank.passes, actions, strict=True))
    return replace(rank, passes=tuple(passes))


def _placement(ranks: Sequence[RankStep], pipeline: Mapping[int, int]) -> StagePlacement:
    stages: dict[int, set[int]] = {}
    for rank in ranks:
        stages.setdefault(pipeline[rank.rank], set()).update(e.action.stage for e in rank.passes if e.action)
    missing = sorted(set(range(1 + max(map(max, stages.values())))) - set().union(*stages.values()))
    if missing:
        raise UsageError(f"no trace has stage {missing[0]}; needs a trace of every pipeline rank")
    try:
        return StagePlacement(tuple(tuple(sorted(stages[pp])) for pp in sorted(stages)))
    except ValueError as error:
        raise UsageError(f"the traces are not of one pipeline: {error}") from None


def _check_whole(ranks: Sequence[RankStep], placement: StagePlacement, m: int, parallel: ParallelConfig | None) -> None:
    """Raise `UsageError` unless this is the whole pipeline, and that of the configuration."""
    if parallel is not None and (placement, m) != (parallel.placement, parallel.m):
        raise UsageError(
            f"the traces show p={placement.p}, v={placement.v}, m={m}, the configuration has p={parallel.p}, "
            f"v={parallel.v}, m={parallel.m}; needs the configuration that was run, and all its pipeline ranks"
        )
    if placement.p == 1 and any(rank.messages for rank in ranks):
        raise UsageError(
            f"rank {ranks[0].rank} sends and receives, but no other pipeline rank's trace is given; needs one of "
            "each, or the configuration that was run; try --point POINT.json"
        )


def _end(rank: RankStep) -> float:
    return max(spans[-1][1] for spans in (rank.compute, rank.collectives, rank.messages) if spans)


def _parts(
    rank: RankStep, ready: Mapping[Message, float], placement: StagePlacement, start: float, last: float, end: float
) -> dict[str, float]:
    """Where a rank's time goes from `start`, the first pass of any rank, over the `last` one's end to the step's `end`.

    `ready` says when both ends of a message were ready for it.
    """
    parts = dict.fromkeys((*PHASES, *OF_PASSES, "gaps"), 0.0)
    before, sent, talking = start, None, merged(rank.messages)
    for event in rank.passes:
        assert event.action is not None
        exposed = {
            axis: length(minus(clipped(spans, event.start, event.end), rank.compute))
            for axis, spans in rank.axes.items()
        }
        parts["forward" if event.kind == "F" else "backward"] += event.end - event.start - exposed[DATA]
        parts["data_parallel"] += exposed[DATA]
        for name, (axis, _) in OF_PASSES.items():
            parts[name] += exposed[axis]
        messages = [message for message in (message_into(event.action, placement), sent) if message]
        waited = min(max([before, *(ready.get(message, start) for message in messages)]), event.start)
        talks = length(clipped(talking, waited, event.start))
        parts["pipeline_communication"] += talks
        parts["bubble"] += event.start - before - talks
        parts["gaps"] += event.start - waited - talks
        before, sent = event.end, message_out_of(event.action, placement)
    drain = [span for span in minus(rank.collectives, rank.compute) if before <= span[0] and span[1] <= last]
    parts["bubble"] += last - before - length(drain) - length(clipped(rank.optimizer, before, last))
    parts["data_parallel"] += length(drain) + length(minus(clipped(rank.collectives, last, end), rank.compute))
    parts["optimizer"] = length(clipped(rank.optimizer, before, end))
    return parts


def _both_ready(
    rank: RankStep, ranks: Sequence[RankStep], pipeline: Mapping[int, int], placement: StagePlacement, start: float
) -> dict[Message, float]:
    """For each message of a rank's pipeline, when it was made and its receiver had asked for it, or could have.

    The ranks with the same place among the replicas of their stages are one pipeline.
    """
    replicas = [[other for other in ranks if pipeline[other.rank] == pp] for pp in range(placement.p)]
    place = replicas[pipeline[rank.rank]].index(rank)
    peers = [group[place % len(group)] for group in replicas]
    made = {
        message_out_of(event.action, placement): event.end for peer in peers for event in peer.passes if event.action
    }
    ready: dict[Message, float] = {}
    for peer in peers:
        ends = sorted((end, begin) for begin, end in peer.messages)
        before = start
        for event in peer.passes:
            assert event.action is not None
            message = message_into(event.action, placement)
            if message and message in made:
                arrived = bisect_left(ends, (made[message],))
                posted = min(before, ends[arrived][1]) if arrived < len(ends) else before
                ready[message] = max(made[message], posted)
            before = event.end
    return ready


def clipped(spans: Sequence[Span], begin: float, end: float) -> tuple[Span, ...]:
    """The parts of spans between two times; they are in order, and do not touch."""
    first, last = max(bisect_right(spans, (begin,)) - 1, 0), bisect_left(spans, (end,))
    cut = ((max(a, begin), min(b, end)) for a, b in spans[first:last])
    return tuple((a, b) for a, b in cut if a < b)


def minus(spans: Sequence[Span], others: Sequence[Span]) -> tuple[Span, ...]:
    """The parts of spans that no other covers; both are in order, and none of a kind touch."""
    left: list[Span] = []
    for begin, end in spans:
        for a, b in clipped(others, begin, end):
            left.append((begin, a))
            begin = b
        left.append((begin, end))
    return tuple((a, b) for a, b in left if a < b)


def length(spans: Sequence[Span]) -> float:
    """The time that spans, which do not touch, take together."""
    return fsum(end - begin for begin, end in spans)

"""The simulated timeline of a configuration, and who waits for whom in it, in sentences."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from ptdp_core.config import TrainingConfig
from ptdp_core.schedules import stash_course
from ptdp_core.simulator import Estimate, load_cluster, simulate
from reproduce.experiment.parameters import check_keys

MOST_DRAWN = 500_000  # passes of a timeline
PASSES = {"F": "forward", "B": "backward", "I": "input-gradient", "W": "weight-gradient"}


class Kept(NamedTuple):
    """An iteration with its timeline, and which pass, as (rank, index in its row), made an output."""

    estimate: Estimate
    makers: Mapping[Any, tuple[int, int]]


def timeline(configuration: Mapping[str, Any], cluster: str) -> dict[str, Any]:
    """The simulated passes of every pipeline rank: [kind, stage, microbatch, start, end] in seconds, and its stash.

    The stash of a rank is a list of [second, microbatches of a chunk held from then on]. The critical path is a list of
    [rank, index of the pass in its row], from the last pass to the first. `waits` is a sentence.
    """
    kept = _simulated(configuration, cluster)
    estimate, rows = kept.estimate, kept.estimate.timeline
    parallel = estimate.config.parallel
    return {
        "iteration_time": estimate.iteration_time,
        "idle_fraction": estimate.idle_fraction,
        "p": parallel.p,
        "rows": [
            [[kind, *(action[1:] if action else (None, None)), start, end] for kind, action, start, end, _ in row]
            for row in rows
        ],
        "stash": [[[time, stashed + deferred] for time, stashed, deferred in stash_course(row)] for row in rows],
        "critical": _critical_path(kept),
        "waits": _most_waited(kept),
    }


def wait(configuration: Mapping[str, Any], cluster: str, rank: int, place: int) -> dict[str, Any]:
    """In a sentence: for whom a rank waits before the pass at a place of its row, or after its last one."""
    return {"sentence": _waits(_simulated(configuration, cluster), rank, place)}


def _simulated(configuration: Mapping[str, Any], cluster: str) -> Kept:
    """The iteration with its timeline; kept, because a page asks about one again and again. Raises `ValueError`."""
    check_keys(configuration)
    config = TrainingConfig.from_plain(configuration)
    parallel = config.parallel
    if (passes := 2 * parallel.m * parallel.p * parallel.v) > MOST_DRAWN:
        raise ValueError(f"{passes} passes are too many to draw; needs at most {MOST_DRAWN}; try a smaller B")
    return _kept(config, cluster)


@lru_cache(maxsize=2)  # two schedules that stand side by side
def _kept(config: TrainingConfig, cluster: str) -> Kept:
    estimate = simulate(config, load_cluster(cluster), timeline=True)
    return Kept(
        estimate,
        {
            event.action.output: (rank, i)
            for rank, row in enumerate(estimate.timeline)
            for i, event in enumerate(row)
            if event.action
        },
    )


def _critical_path(kept: Kept) -> list[list[int]]:
    """The critical path, as (rank, index in its row) from the last pass back to the first.

    Before a pass comes the one before it on its rank, or the one that made its input, whichever ended later; before a
    fused pair one that made an input of either.
    """
    rows, makers = kept.estimate.timeline, kept.makers
    stages = _stages(kept)

    def end(place: tuple[int, int]) -> float:
        return rows[place[0]][place[1]].end

    path, place = [], max(makers.values(), key=end, default=None)
    while place is not None:
        path.append(list(place))
        rank, i = place
        row, (_, _, start, ended, _) = rows[rank], rows[rank][i]
        together = [event.action for event in row[max(i - 1, 0) : i + 2] if (event.start, event.end) == (start, ended)]
        sources = [makers.get(action.input(stages)) for action in together if action]
        before = next(((rank, j) for j in range(i - 1, -1, -1) if row[j].action and row[j].end <= start), None)
        place = max(filter(None, (before, *sources)), key=end, default=None)
    return path


def _gap(estimate: Estimate, rank: int, place: int) -> tuple[float, float]:
    """Start and length of the waiting before the pass at a place of a rank's row, in seconds."""
    row = estimate.timeline[rank]
    start = row[place - 1].end if place else 0.0
    return start, (row[place].start if place < len(row) else estimate.iteration_time) - start


def _waits(kept: Kept, rank: int, place: int) -> str:
    """In a sentence: how long a rank waits there, and for whom; a message is waited for as the pass that takes it."""
    rows = kept.estimate.timeline
    start, length = _gap(kept.estimate, rank, place)
    waits = f"Rank {rank} waits {_shown(length)} from {start:.3f} s"
    action = next((event.action for event in rows[rank][place:] if event.action), None)
    source = action.input(_stages(kept)) if action else None
    maker = kept.makers.get(source) if source else None
    if maker is None:
        return f"{waits}, until the slowest rank has come as far."
    made = rows[maker[0]][maker[1]].action
    assert made is not None
    kind = PASSES.get(made[0], made[0])
    return f"{waits}, for the {kind} pass of microbatch {made[2]} on rank {maker[0]} and its message."


def _stages(kept: Kept) -> int:
    parallel = kept.estimate.config.parallel
    return parallel.p * parallel.v


def _most_waited(kept: Kept) -> str:
    """In a sentence: the longest waiting of the iteration, and for whom."""
    rows = kept.estimate.timeline
    places = [(rank, place) for rank, row in enumerate(rows) for place in range(len(row) + 1)]
    longest = max(places, key=lambda place: _gap(kept.estimate, *place)[1])
    return f"The longest waiting: {_waits(kept, *longest)}"


def _shown(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1e3 * seconds:.2f} ms"

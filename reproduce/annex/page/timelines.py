"""The simulated timeline of a configuration, and who waits for whom in it, in sentences."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import lru_cache
from statistics import median
from typing import Any, NamedTuple

from ptdp_core.config import TrainingConfig
from ptdp_core.schedules import Schedule, execute, stash_course
from ptdp_core.schedules.files import check
from ptdp_core.simulator import Estimate, simulate
from reproduce.annex.page import answers
from reproduce.experiment.sweep import check_keys
from reproduce.output import traces
from reproduce.output.timeline import from_estimate, from_schedule

MOST_DRAWN = 500_000  # passes of a timeline
PASSES = {"F": "forward", "B": "backward", "I": "input-gradient", "W": "weight-gradient"}


class Kept(NamedTuple):
    """An iteration with its timeline, and which pass, as (rank, index in its row), made an output."""

    estimate: Estimate
    makers: Mapping[Any, tuple[int, int]]


def timeline(configuration: Mapping[str, Any], cluster: str) -> dict[str, Any]:
    """The simulated passes of every pipeline rank: [kind, stage, microbatch, start, end] in seconds, and its stash.

    The stash of a rank is a list of [second, microbatches of a chunk held from then on]. `facts` are what to look for.
    """
    kept = _simulated(configuration, cluster)
    return drawn(kept.estimate.timeline, kept.estimate.iteration_time, "s") | {"facts": _facts(kept)}


def drawn(rows: Sequence[Sequence[Any]], end: float, unit: str, scale: float = 1) -> dict[str, Any]:
    """The passes and stashes of ranks as plain data, each time and count divided by a scale."""
    return {
        "iteration_time": end / scale,
        "p": len(rows),
        "rows": [
            [
                [kind, *(action[1:] if action else (None, None)), start / scale, to / scale]
                for kind, action, start, to, _ in row
            ]
            for row in rows
        ],
        "stash": [[[time / scale, (held + late) / scale] for time, held, late in stash_course(row)] for row in rows],
        "unit": unit,
        "facts": [],
    }


def own(text: str) -> dict[str, Any]:
    """The timeline of a schedule of one's own, the text of a CSV file, in units of a forward pass. Raises `ValueError`.

    A backward pass takes two units, each half of a split one a unit.
    """
    rows = execute(_read(text), 1, 2, 1)
    return drawn(rows, float(max(event.end for row in rows for event in row)), "units")


def trace(configuration: Mapping[str, Any], cluster: str, csv: str = "") -> dict[str, str]:
    """The timeline, or that of a schedule of one's own, as a trace that Perfetto opens. Raises `ValueError`."""
    if not csv:
        return {"trace": traces.trace([from_estimate(_simulated(configuration, cluster).estimate)]).decode()}
    return {"trace": traces.trace([from_schedule(_read(csv))]).decode()}


def _read(csv: str) -> Schedule:
    schedule = Schedule.from_csv(csv, "the file")
    check(schedule)
    return schedule


def moment(configuration: Mapping[str, Any], cluster: str, time: float, csv: str = "") -> dict[str, Any]:
    """What happens at a time: which stages work, for whom the first that waits does, and what the ends hold.

    Of a schedule of one's own nothing is said about who waits for whom.
    """
    kept = None if csv else _simulated(configuration, cluster)
    rows: Sequence[Sequence[Any]] = kept.estimate.timeline if kept else execute(_read(csv), 1, 2, 1)
    places = [bisect_right(row, time, key=lambda event: event.end) for row in rows]
    works = [place < len(row) and row[place].start <= time for place, row in zip(places, rows, strict=True)]
    working = [rank + 1 for rank, does in enumerate(works) if does]
    waiting = len(rows) - len(working)
    who = (
        f"stage{'s' * (len(working) > 1)} {_listed(working)} work{'s' * (len(working) == 1)}"
        if working
        else "nobody works"
    )
    if not waiting:
        who = "all stages work"
    rest = f"; the other {waiting} wait" if working and waiting > 1 else "; the other one waits" if waiting == 1 else ""
    idle = next((rank for rank, does in enumerate(works) if not does), None)
    held = [_held(row, time) for row in (rows[0], rows[-1])]
    wait_words = f"{_waits(kept, idle, places[idle])} " if kept and idle is not None else ""
    sentence = f"At {time:.2f} {'s' if kept else 'units'} {who or 'nobody works'}{rest}"
    return {"sentence": sentence, "detail": f"{wait_words}Stage 1 holds {held[0]:g}, stage {len(rows)} {held[1]:g}."}


def _listed(numbers: Sequence[int]) -> str:
    """'1 to 4' and '10, 11 and 12'."""
    if len(numbers) > 3 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]} to {numbers[-1]}"
    *others, last = map(str, numbers)
    return f"{', '.join(others)} and {last}" if others else last


def _held(row: Sequence[Any], time: float) -> float:
    """The microbatches of a chunk that a stage holds at a time."""
    states = [stashed + deferred for at, stashed, deferred in stash_course(row) if at <= time]
    return states[-1] if states else 0


def _facts(kept: Kept) -> list[tuple[str, str, str, str]]:
    """What to look for: how long is waited, how long at once, what is held at most, how long a backward pass is."""
    estimate, rows = kept.estimate, kept.estimate.timeline
    gaps = [(_gap(estimate, rank, i)[1], rank) for rank, row in enumerate(rows) for i in range(len(row) + 1)]
    longest, rank = max(gaps)
    most = [max((s + d for _, s, d in stash_course(row)), default=0) for row in rows]
    lengths = {kind: [e.end - e.start for e in rows[0] if e.kind == kind] for kind in "FB"}
    facts = [
        (
            "Waiting, of the time",
            f"{100 * estimate.idle_fraction:.3g}",
            "%",
            f"{100 * estimate.bubble_fraction:.3g}% over work, as the paper counts",
        ),
        ("Longest wait", f"{longest:.3g}", "s", f"stage {rank + 1}"),
        (
            "Held at most",
            f"{max(most)}",
            "microbatches",
            f"stage {most.index(max(most)) + 1}; the last {most[-1]}",
        ),
    ]
    if all(lengths.values()):
        share = median(lengths["B"]) / median(lengths["F"])
        facts.append(("Backward over forward", f"{share:.2g}", "×", "with what it computes again"))
    return facts


def _simulated(configuration: Mapping[str, Any], cluster: str) -> Kept:
    """The iteration with its timeline; kept, because a page asks about one again and again. Raises `ValueError`."""
    given = answers.said(configuration)
    program = given.pop("program", None)
    check_keys(given)
    config = answers.config_of(configuration)
    parallel = config.parallel
    if (passes := 2 * parallel.m * parallel.p * parallel.v) > MOST_DRAWN:
        raise ValueError(f"{passes} passes are too many to draw; needs at most {MOST_DRAWN}; try a smaller B")
    return _kept(config, cluster, program)


@lru_cache(maxsize=2)  # two schedules that stand side by side
def _kept(config: TrainingConfig, cluster: str, program: str | None) -> Kept:
    estimate = simulate(config, answers.opened(cluster, program), timeline=True)
    places = ((rank, i, event.action) for rank, row in enumerate(estimate.timeline) for i, event in enumerate(row))
    return Kept(estimate, {action.output: (rank, i) for rank, i, action in places if action})


def _gap(estimate: Estimate, rank: int, place: int) -> tuple[float, float]:
    """Start and length of the waiting before the pass at a place of a rank's row, in seconds."""
    row = estimate.timeline[rank]
    start = row[place - 1].end if place else 0.0
    return start, (row[place].start if place < len(row) else estimate.iteration_time) - start


def _waits(kept: Kept, rank: int, place: int) -> str:
    """In a sentence: how long a rank waits there, and for whom; a message is waited for as the pass that takes it."""
    rows = kept.estimate.timeline
    start, length = _gap(kept.estimate, rank, place)
    waits = f"Stage {rank + 1} waits {_shown(length)} from {start:.3g} s"
    action = next((event.action for event in rows[rank][place:] if event.action), None)
    source = action.input(_stages(kept)) if action else None
    maker = kept.makers.get(source) if source else None
    if maker is None:
        return f"{waits}, until the slowest stage has come as far."
    made = rows[maker[0]][maker[1]].action
    assert made is not None
    kind = PASSES.get(made[0], made[0])
    return f"{waits}, for the {kind} pass of microbatch {made[2] + 1} from stage {maker[0] + 1}."


def _stages(kept: Kept) -> int:
    parallel = kept.estimate.config.parallel
    return parallel.p * parallel.v


def _shown(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"

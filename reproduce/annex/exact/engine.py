"""Section `engine`: one training step of tiny models in real ranks, with every rank's counts.

This module imports no torch: `dispatched.py` does, in the ranks.
"""

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ptdp_core.engine.settings import Settings
from ptdp_core.engine.settings_file import FIELDS, from_mapping
from ptdp_core.launch.local import RankError, launch
from ptdp_core.packages import installation
from ptdp_core.schedules import build, lower
from reproduce.annex.exact.entries import (
    KINDS,
    PROBLEM,
    Case,
    Entry,
    Quantities,
    Section,
    Value,
    model_of,
    schedule_of,
    shards_of,
    tables,
)
from reproduce.annex.exact.schedules import problem
from results.records.errors import UnavailableError

TIMEOUT = 60.0  # seconds after which ranks that finished no case count as hung

TABLES = tables("engine")
AXES: tuple[Case, ...] = tuple(TABLES["axes"])
CASES: tuple[Case, ...] = (*TABLES["engine"], *AXES)
NOT_SETTINGS = ("model", "evaluated")


def settings(case: Case) -> Settings:
    """The complete configuration of a case; it runs on CPUs."""
    layers = max(2, case.get("p", 1) * case.get("v", 1))
    sections = {
        "model": {"layers": layers} | model_of(TABLES["models"], case.get("model", "gpt")),
        "engine": {"device": "cpu"},
    }
    for key, value in case.items():
        if key not in NOT_SETTINGS:
            sections.setdefault(FIELDS[key], {})[key] = value
    return from_mapping(sections)


def name(case: Case) -> str:
    """The name of a case: its settings in one line."""
    return " ".join(f"{key}={str(value).lower() if value is False else value}" for key, value in case.items())


def collect() -> Section:
    """Run all cases. Raises `UnavailableError` where torch is not installed."""
    return run(CASES, count_in_rank)


def run(cases: Sequence[Case], in_rank: Callable[..., list[Any]]) -> Section:
    """Run cases, and return their entries by name: `in_rank(beat, cases)` counts on each rank.

    Ranks start once for all cases of as many ranks, and if one fails, all these have its error in place of quantities.
    A case whose program would hang is not started. Raises `UnavailableError` without torch.
    """
    require_torch()
    by_ranks: dict[int, list[Case]] = {}
    for case in cases:
        by_ranks.setdefault(settings(case).parallel.n, []).append(case)
    entries = (_together(ranks, group, in_rank) for ranks, group in by_ranks.items())
    return {label: entry for group in entries for label, entry in group.items()}


def require_torch() -> None:
    """Raise `UnavailableError` without torch."""
    if importlib.util.find_spec("torch") is None:
        raise UnavailableError(
            f"the engine's exact checks need torch; try {installation('torch')}, or name other sections"
        )


def _together(ranks: int, cases: Sequence[Case], in_rank: Callable[..., list[Any]]) -> Section:
    problems = {name(case): _problem(case) for case in cases}
    runnable = [case for case in cases if not problems[name(case)]]
    quantities: dict[str, Quantities] = {label: {"order": {PROBLEM: why}} for label, why in problems.items() if why}
    try:
        by_rank = launch(in_rank, ranks, (runnable,), timeout=TIMEOUT) if runnable else []
    except RankError as error:
        why = str(error).splitlines()[0]
        quantities |= {name(case): {"order": {PROBLEM: why}} for case in runnable}
    else:
        for case, *counted in zip(runnable, *by_rank, strict=True):
            quantities[name(case)] = transposed(counted)
    return {name(case): _entry(case, quantities[name(case)]) for case in cases}


def _entry(case: Case, quantities: Quantities) -> Entry:
    parallel = settings(case).parallel
    return Entry(quantities, schedule_of(parallel), shards_of(parallel))


def _problem(case: Case) -> str:
    """Why a case's program would hang; empty if it runs."""
    config = settings(case)
    parallel = config.parallel
    schedule = build(parallel.schedule, parallel.p, parallel.m, parallel.v)
    return problem(lower(schedule, config.engine.exchange))


def count_in_rank(beat: Callable[[], None], cases: Sequence[Case]) -> list[Any]:
    """Count each case on this rank; every rank runs this function."""
    return [_count(settings(case), beat) for case in cases]


def _count(settings: Settings, beat: Callable[[], None]) -> dict[str, dict[str, Any]]:
    """Train one batch, and return this rank's quantities by kind."""
    import torch

    from kernels import select
    from ptdp_core.engine.groups import Groups
    from ptdp_core.engine.trainer import Trainer
    from reproduce.annex.exact.dispatched import Counts

    groups, b = Groups.create(settings.parallel), settings.parallel.b
    trainer = Trainer(settings, groups, select(settings.kernels), record=True)
    tokens = torch.zeros(b, settings.model.seq, dtype=torch.long)
    counts = Counts(groups, trainer.vocabulary)
    with counts.active():
        run = trainer.step(lambda microbatch: (tokens, tokens)).run
    beat()
    statistics = trainer.p2p.statistics
    return {
        "order": {"executed": " ".join(str(event.action) for event in run.timeline if event.action)},
        "communication": counts.communication()
        | {"messages": statistics.messages, "message bytes": statistics.bytes, "exchanges": statistics.exchanges},
        "work": {"GEMM FLOPs": counts.flops},
        "memory": {"peak stash": run.peak_stash, "peak receive buffers": statistics.peak_receive_buffers},
    }


def transposed(by_rank: Sequence[Mapping[str, Mapping[str, Any]]]) -> Quantities:
    """Turn a list of each rank's quantities into quantities with a list by rank.

    A count that a rank lacks is 0, a text ''. A text that is the same on all ranks stands once. A kind without
    quantities is left out.
    """
    kinds: dict[str, dict[str, Value]] = {}
    for kind in dict.fromkeys(kind for rank in by_rank for kind in rank):
        kinds[kind] = {}
        for key in dict.fromkeys(key for rank in by_rank for key in rank[kind]):
            known = next(rank[kind][key] for rank in by_rank if key in rank[kind])
            values = [rank[kind].get(key, "" if isinstance(known, str) else 0) for rank in by_rank]
            kinds[kind][key] = values[0] if KINDS[kind].counted and len(set(values)) == 1 else values
    return {kind: values for kind, values in kinds.items() if values}

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
from reproduce.annex.exact.entries import COUNTED, PROBLEM, Entry, Quantities, Section, Value, schedule_of, shards_of
from reproduce.annex.exact.schedules import problem
from results.records.errors import UnavailableError

TIMEOUT = 60.0  # seconds after which ranks that finished no case count as hung

Case = dict[str, Any]

# The axes that came after the paper, each at two sizes. Which experts a token chooses depends on numbers, which are of
# fp32, so that those of another machine choose the same ones.
AXES: tuple[Case, ...] = (
    {"model": "llama", "c": 4, "b": 2, "B": 4, "context_exchange": "ring", "attention": "sdpa", "recompute": "none"}
    | {"dtype": "bf16"},
    {"model": "llama", "p": 2, "c": 2, "B": 4, "context_exchange": "ring", "attention": "sdpa"},
    {"t": 2, "c": 2, "b": 2, "B": 4, "recompute": "none", "dtype": "bf16", "dropout": 0.1},
    {"c": 4, "B": 1, "sharded_optimizer": True},
    {"t": 2, "c": 2, "b": 2, "B": 4, "context_exchange": "all_to_all", "dtype": "bf16"},
    {"c": 4, "B": 1, "context_exchange": "all_to_all", "recompute": "none"},
    {"model": "experts", "t": 2, "d": 2, "e": 2, "b": 2, "B": 8, "sharded_optimizer": True}
    | {"recompute": "selective", "recompute_modules": "moe"},
    {"model": "mixture", "layers": 3, "t": 2, "d": 2, "e": 4, "etp": 1, "sequence_parallel": True, "B": 2}
    | {"capacity_factor": 1.25},
    {"p": 2, "t": 2, "b": 2, "B": 4, "fp8_recipe": "tensorwise", "dtype": "bf16", "sequence_parallel": True},
    {"p": 2, "d": 2, "B": 4, "fp8_recipe": "blockwise", "schedule": "zb-h1", "recompute": "none", "dtype": "bf16"},
    {"d": 4, "B": 4, "fp8_recipe": "mxfp8", "data_parallel": "torch", "fused_accumulation": True},
    {"model": "experts", "p": 2, "v": 2, "d": 2, "e": 2, "B": 8, "schedule": "dualpipev-overlap"},
    {"model": "all experts", "p": 2, "v": 2, "d": 2, "e": 2, "b": 2, "B": 16, "schedule": "dualpipev-overlap"}
    | {"recompute": "none", "exchange": "overlapped", "dtype": "bf16"},
    {"p": 2, "v": 2, "d": 2, "B": 4, "layers": 4, "pipeline_layout": "Et|tt|t|L"}
    | {"recompute": "selective", "recompute_modules": "core_attn,mlp"},
    {"p": 4, "B": 6, "layers": 5, "pipeline_layout": "E|tt|ttt|L", "exchange": "overlapped"},
    {"p": 4, "B": 6, "schedule": "1f1b+vocab-1"},
    {"model": "llama", "p": 2, "v": 2, "d": 2, "B": 8, "schedule": "v-half+vocab-2", "exchange": "overlapped"},
    {"model": "llama", "p": 4, "B": 4, "schedule": "1f1b+interlaced", "recompute": "none"},
)

# Cases by number of ranks, which start once for all of them. A case has fields of `Settings`, of which `layers` is one
# per chunk by default, and at least 2. Its `model` is one of `MODELS`, by default a GPT.
CASES: dict[int, tuple[Case, ...]] = {
    4: (
        {"p": 2, "t": 2, "B": 4, "layers": 4},
        {"p": 2, "t": 2, "B": 4, "scatter_gather": False},
        {"p": 2, "t": 2, "B": 4, "recompute": "none", "exchange": "overlapped"},
        {"p": 2, "t": 2, "v": 2, "B": 4},
        {"p": 2, "t": 2, "B": 4, "sequence_parallel": True},
        {"p": 2, "t": 2, "B": 4, "recompute": "selective"},
        {"p": 4, "B": 6, "schedule": "gpipe"},
        {"p": 4, "B": 6, "recompute": "none"},
        {"p": 4, "B": 6, "schedule": "zb-h1"},
        {"p": 2, "t": 2, "B": 4, "schedule": "zb-h1", "recompute": "none"},
        {"p": 4, "B": 6, "schedule": "eager-1f1b"},
        {"p": 4, "B": 8, "schedule": "zb-h2", "exchange": "overlapped"},
        {"p": 4, "v": 2, "B": 8},
        {"p": 4, "v": 2, "B": 6, "schedule": "breadth-first"},
        {"p": 4, "v": 2, "B": 8, "schedule": "interleaved-zb"},
        {"p": 4, "v": 2, "B": 8, "schedule": "zb-v", "exchange": "overlapped"},
        {"p": 4, "v": 2, "B": 8, "schedule": "v-half"},
        {"p": 4, "v": 2, "B": 8, "schedule": "v-min"},
        {"p": 4, "v": 2, "B": 8, "schedule": "dualpipev"},
        {"p": 4, "v": 2, "B": 8, "schedule": "dualpipev-overlap"},
        {"p": 4, "v": 4, "B": 4, "schedule": "hanayo", "recompute": "none"},
        {"t": 4, "b": 2, "B": 4, "checkpoint_layers": 2},
        {"t": 2, "d": 2, "B": 4, "data_parallel": "torch", "bucket_mib": 0.002},
        {"d": 4, "B": 8, "sharded_optimizer": True},
        {"p": 2, "d": 2, "B": 8, "b": 2},
        *AXES,
    ),
    8: ({"p": 2, "t": 2, "d": 2, "v": 2, "B": 8},),
}
GPT: dict[str, Any] = {"hidden": 16, "heads": 4, "seq": 8, "vocab": 50}
LLAMA = GPT | {
    "kv_heads": 2,
    "ffn_hidden": 24,
    "activation": "swiglu",
    "norm": "rmsnorm",
    "positions": "rotary",
    "tied_embeddings": False,
    "bias": False,
}
EXPERTS = GPT | {"experts": 4, "experts_per_token": 2, "bias": False}
ALL_EXPERTS = EXPERTS | {"experts": 2}  # every token goes through all of them, which needs no choice
MIXTURE = LLAMA | {
    "head_dim": 6,
    "qk_norm": True,
    "rope_theta": 1e6,
    "experts": 8,
    "experts_per_token": 3,
    "expert_ffn_hidden": 12,
    "shared_expert_ffn_hidden": 20,
    "dense_layers": 1,
    "router": "sigmoid",
    "auxiliary_loss": 0.01,
}
MODELS = {"gpt": GPT, "llama": LLAMA, "experts": EXPERTS, "all experts": ALL_EXPERTS, "mixture": MIXTURE}
NOT_SETTINGS = ("model", "evaluated")  # `evaluated` is of `counts`: the forward passes of an evaluation are counted


def settings(case: Case) -> Settings:
    """The complete configuration of a case; it runs on CPUs."""
    layers = max(2, case.get("p", 1) * case.get("v", 1))
    sections = {"model": {"layers": layers} | MODELS[case.get("model", "gpt")], "engine": {"device": "cpu"}}
    for key, value in case.items():
        if key not in NOT_SETTINGS:
            sections.setdefault(FIELDS[key], {})[key] = value
    return from_mapping(sections)


def name(case: Case) -> str:
    """The name of a case: its settings in one line."""
    return " ".join(f"{key}={str(value).lower() if value is False else value}" for key, value in case.items())


def collect() -> Section:
    """Run all cases. Raises `UnavailableError` where torch is not installed."""
    return {label: entry for count, cases in CASES.items() for label, entry in run(count, cases, count_in_rank).items()}


def run(count: int, cases: Sequence[Case], in_rank: Callable[..., list[Any]]) -> Section:
    """Run cases on `count` ranks, and return their entries by name: `in_rank(beat, cases)` counts on each rank.

    A case whose program would hang is not started. If a rank fails, all cases have its error in place of quantities.
    Raises `UnavailableError` without torch.
    """
    if importlib.util.find_spec("torch") is None:
        raise UnavailableError(
            f"the engine's exact checks need torch; try {installation('torch')}, or name other sections"
        )
    problems = {name(case): _problem(case) for case in cases}
    runnable = [case for case in cases if not problems[name(case)]]
    quantities: dict[str, Quantities] = {label: {"order": {PROBLEM: why}} for label, why in problems.items() if why}
    try:
        by_rank = launch(in_rank, count, (runnable,), timeout=TIMEOUT) if runnable else []
    except RankError as error:
        why = str(error).splitlines()[0]
        quantities |= {name(case): {"order": {PROBLEM: why}} for case in runnable}
    else:
        for case, *counted in zip(runnable, *by_rank, strict=True):
            quantities[name(case)] = _transpose(counted)
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
    from reproduce.annex.exact.dispatched import count

    return [count(settings(case), beat) for case in cases]


def _transpose(by_rank: Sequence[Mapping[str, Mapping[str, Any]]]) -> Quantities:
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
            kinds[kind][key] = values[0] if kind in COUNTED and len(set(values)) == 1 else values
    return {kind: values for kind, values in kinds.items() if values}

"""Every field of a configuration changes some case: what no case has, no exact check can see."""

from collections import defaultdict
from dataclasses import fields

import pytest

from ptdp_core.config import ModelConfig, ParallelConfig
from ptdp_core.engine.settings import EngineSettings
from ptdp_core.schedules.vocabulary import METHODS
from reproduce.annex.exact import counts, engine, simulated

# What needs no case, and why.
EXEMPT = {
    "auto": "another value takes its place before a step (`counts.AUTO`)",
    "fp64": "does what fp32 does, and serves tests of parity",
    "kernels": "which ones run depends on the device (`counts.AUTO`)",
    "device": "cases run on CPUs",
    "cuda_graph": "needs a GPU (`test_cuda_graph`)",
    "seed": "any other is as good",
}


def values():
    """All values that the cases of any section have of each field."""
    found = defaultdict(set)
    trained = [engine.settings(case) for of in (engine, counts) for case in of.CASES]
    parts = [part for case in trained for part in (case.model, case.parallel, case.engine)]
    parts += [part for case in simulated.configurations().values() for part in (case.model, case.parallel)]
    for part in parts:
        for item in fields(part):
            found[item.name].add(getattr(part, item.name))
    return found


@pytest.mark.parametrize("part", [ModelConfig, ParallelConfig, EngineSettings])
def test_every_field_of_a_configuration_changes_a_case(part):
    found = values()
    same = [item.name for item in fields(part) if len(found[item.name]) < 2 and item.name not in EXEMPT]
    assert not same, f"no exact case has another {same[0]}: add one to engine.toml or simulated.toml"
    for item in fields(part):
        lacking = [c for c in item.metadata["choices"] if c not in found[item.name] and c not in EXEMPT]
        assert item.name in EXEMPT or not lacking, f"no case of reproduce/annex/exact has {item.name}={lacking[0]!r}"


def test_every_way_to_share_the_vocabulary_is_a_case():
    trained = {engine.settings(case).parallel.vocabulary for case in engine.CASES}
    simulated_ways = {case.parallel.vocabulary for case in simulated.configurations().values()}
    assert trained == simulated_ways == {"", *METHODS}


def test_what_came_after_the_paper_is_trained_at_two_sizes():
    trained = [engine.settings(case).training for case in engine.AXES]
    for exchange in ("ring", "all_gather", "all_to_all"):
        assert {x.parallel.c for x in trained if x.parallel.context_exchange == exchange} >= {2, 4}
    assert {x.parallel.e for x in trained} >= {1, 2, 4}
    assert len({(x.parallel.b, x.parallel.B) for x in trained if "overlap" in x.parallel.schedule}) == 2
    assert len({x.parallel.fp8_recipe for x in trained}) == 4
    assert len({x.parallel.pipeline_layout for x in trained}) == 3

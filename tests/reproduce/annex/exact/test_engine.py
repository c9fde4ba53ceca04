"""The engine's section: programs that would hang are not started, ranks that fail say so, torch that is missing too."""

from dataclasses import fields

import pytest

from ptdp_core.engine.settings_file import SECTIONS
from ptdp_core.launch.local import RankError
from ptdp_core.layout import Boundary
from ptdp_core.schedules import names
from ptdp_core.schedules.vocabulary import SEPARATOR
from reproduce.annex.exact import comparison, counts, engine
from results.records.errors import UnavailableError


def test_a_program_that_would_hang_is_not_started(monkeypatch):
    monkeypatch.setattr(engine, "problem", lambda program: "stuck=2 ranks wait for each other")
    monkeypatch.setattr(engine, "launch", lambda *args, **options: pytest.fail("started"))
    section = engine.collect()
    assert {entry.problem for entry in section.values()} == {"stuck=2 ranks wait for each other"}


def test_a_rank_that_fails_says_so_in_one_line_and_is_not_accepted(monkeypatch):
    def launch(*args, **options):
        raise RankError(1, 1, "failed: ValueError: no\nTraceback")

    monkeypatch.setattr(engine, "launch", launch)
    assert {entry.problem for entry in engine.collect().values()} == {"rank 1 failed: ValueError: no"}
    with pytest.raises(UnavailableError, match="nothing accepted: engine, p=2 t=2 B=4 layers=4: rank 1 failed"):
        comparison.accept(["engine"])


def test_without_torch_the_section_is_unavailable_not_green(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match="need torch"):
        engine.collect()


def test_the_cases_cover_what_the_engine_can_do():
    cases = [engine.settings(case) for case in engine.CASES]
    schedules = {case.parallel.schedule.partition(SEPARATOR)[0] for case in cases}
    assert schedules == set(names()), "reproduce/annex/exact/engine.toml"
    assert {case.engine.exchange for case in cases} == {"blocking", "overlapped"}
    assert {case.parallel.recompute for case in cases} == {"full", "selective", "none"}
    assert {Boundary.of(case.training).is_scattered for case in cases} == {True, False}
    assert {case.parallel.sharded_optimizer for case in cases} == {True, False}
    assert any(min(case.parallel.p, case.parallel.t, case.parallel.d) > 1 for case in cases)
    every = [engine.settings(case) for of in (engine, counts) for case in of.CASES]
    for section in ("engine", "parallel"):
        for field in fields(SECTIONS[section]):
            # Unfused, which kernels run, says no more; graphs need a GPU.
            if isinstance(field.default, bool) and field.name not in ("fused", "cuda_graph"):
                assert {getattr(getattr(case, section), field.name) for case in every} == {True, False}, field.name
    assert {case.parallel.n for case in cases} == {4, 8}

"""The table of fidelities: a toy one is a row and a module, and everything that speaks of fidelities knows it."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from reproduce.annex.measured import fidelity as measured
from reproduce.experiment import fidelity
from reproduce.experiment.fidelity import FIDELITIES, Fidelity, folder_name
from reproduce.experiment.judging import judge
from reproduce.experiment.results import Results
from reproduce.output.tables import origin_of
from reproduce.running import runner, simulated
from reproduce.running.fidelities import Outcome, PointEvaluator, default_scale, evaluator, expected_seconds, module_of
from results import ROOT, records
from results.records import Metric
from tests.processes import python


class Guess(PointEvaluator):
    """Every square is 7 s."""

    def outcome(self, point):
        return Outcome("ok", None, {"square": Metric(7, "s", "derived")})


@pytest.fixture
def guessed(monkeypatch, small):
    """An artifact with the fidelity 'guessed', at the scales 'paper' and 'tiny'."""
    module = ModuleType("guessed")
    module.make = lambda plan, debug: Guess(plan, "0" * 64, None, debug)
    module.digest = lambda artifact: "0" * 64
    module.expected_seconds = lambda point, cluster: 2.0
    monkeypatch.setitem(sys.modules, "reproduce.running.guessed", module)
    row = Fidelity("guessed", {"paper": 0, "tiny": 0}, True, True, "a toy", "guessed by a toy")
    monkeypatch.setitem(FIDELITIES, "guessed", row)
    return replace(small, sweeps={"paper tiny": small.sweeps["paper"]})


def test_the_rows_are_the_schema_s_fidelities_and_their_modules_are_there():
    assert set(FIDELITIES) == set(records.FIDELITIES), (
        "a row of reproduce/experiment/fidelity.py needs its name in FIDELITIES of results/records/record.py, "
        "from which python -m results.records.schema writes the schema"
    )
    for name in FIDELITIES:
        module = module_of(name)
        assert callable(module.make)
        assert callable(module.digest)


@pytest.mark.parametrize(
    ("sources", "imported"),
    [
        (simulated.SOURCES, "ptdp_core.simulator.peak_memory"),
        (measured.SOURCES, "ptdp_core.engine.trainer, ptdp_core.launch.local"),
    ],
)
def test_a_fidelity_s_digest_has_every_source_that_its_numbers_come_from(sources, imported):
    """Or else a record stays as it is after a change of its numbers."""
    ours = "[module.__file__ for name, module in sys.modules.items() if name.startswith('ptdp_core.')]"
    code = f"import sys, json, {imported}; print(json.dumps({ours}))"
    files = {Path(file).relative_to(ROOT) for file in json.loads(python("-c", code).stdout)} - {
        Path("ptdp_core/errors.py")
    }
    assert [file for file in files if not any(file.is_relative_to(source) for source in sources)] == []


def test_a_toy_fidelity_is_a_row_and_a_module(guessed, tmp_path):
    plan = runner.plan(guessed, tmp_path, "guessed", "tiny")
    assert plan.folder == tmp_path / "fig_squares" / "guessed-tiny"
    assert folder_name("guessed", "paper") == "guessed"
    assert guessed.scales_at("guessed") == ("paper", "tiny")
    assert default_scale(guessed, "guessed") == "paper"
    assert expected_seconds(plan) == (2.0,) * 5
    points = tuple(map(evaluator(plan).evaluate, plan.points))
    assert [point.metrics["square"].value for point in points] == [7] * 5
    assert judge(guessed.claims[0], Results(points, "guessed")).verdict == "contradicted"


def test_a_better_fidelity_tests_what_a_lesser_one_tests(guessed):
    assert fidelity.tests("guessed", "measured")
    assert not fidelity.tests("simulated", "emulated")


def test_the_wording_names_the_cluster_where_it_decides_the_numbers(figure_12):
    record = figure_12.record
    assert origin_of(record) == "simulated on selene"
    assert FIDELITIES["measured"].wording("selene") == "measured"

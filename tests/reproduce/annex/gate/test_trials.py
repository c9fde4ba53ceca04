"""Trials of the gate on itself: what is patched, what is kept, when it goes on, and what it says."""

import json
from dataclasses import replace

import pytest

from reproduce import cli
from reproduce.annex.gate import command_gate_trials as gate_trials
from reproduce.annex.gate import run, trials
from reproduce.annex.gate.guard import Reading
from reproduce.annex.gate.project import read
from reproduce.annex.gate.trees import HEAD
from results.records import read_record
from results.records.errors import DONE, INCONCLUSIVE, INTERNAL
from tests.reproduce.annex.gate.conftest import MadeUpLauncher


class Machine(MadeUpLauncher):
    """Where head is as slow as its code says."""

    slow = 1.2

    def slower(self, side):
        source = (self.trees[HEAD].folder / "ptdp_core/simulator/simulate.py").read_text()
        return self.slow if side == HEAD and source.count("memory = fullest_memory(") == 2 else 1.0


@pytest.fixture
def launcher(pretend):
    return pretend(gate_trials, Machine)


def try_it(tmp_path, *arguments):
    return cli.main(["gate", "trials", "--benchmark", "simulator", "--results", str(tmp_path), *arguments])


def test_the_patch_makes_both_workloads_do_more_and_changes_nothing_else(repository):
    """It is applied to today's sources, so a change of theirs has to change it, too."""
    with trials.built(replace(read(repository), build="touch made")) as kinds:
        identical, slowed = (kinds[kind][HEAD].folder for kind in ("identical", "slowed"))
        assert (slowed / "made").exists()  # it is built as the others are
        changed = [
            path.relative_to(identical).as_posix()
            for path in sorted(identical.rglob("*.py"))
            if path.read_text() != (slowed / path.relative_to(identical)).read_text()
        ]
    assert changed == ["ptdp_core/engine/model.py", "ptdp_core/simulator/simulate.py"]


def test_trials_alternate_are_kept_and_go_on(launcher, tmp_path, capsys):
    assert try_it(tmp_path, "--runs", "2") == DONE
    points = read_record(trials.record_path(tmp_path)).points
    assert [(point.series, point.parameters["verdict"]) for point in points] == [
        ("identical", "ok"),
        ("slowed", "regressed"),
    ]
    assert "2 of 2  slowed     simulator: regressed +" in capsys.readouterr().out
    launcher.slow = 1.0  # the gate would err on what is slowed, and does not measure it again
    assert try_it(tmp_path, "--runs", "2") == DONE
    assert try_it(tmp_path, "--runs", "4") == INTERNAL
    found = read_record(trials.record_path(tmp_path)).points
    assert found[:2] == points
    assert [point.series for point in found] == ["identical", "slowed"] * 2
    assert "| simulator | slowed | 2 | 1 | 1 | 0 |" in " ".join(capsys.readouterr().out.split())
    assert json.loads(trials.record_path(tmp_path).with_name("badge.json").read_text())["message"] == (
        "0 of 2 false, slowed code found in 50%"
    )


def test_trials_of_tests_that_share_a_name_alternate_and_go_on(launcher, tmp_path, monkeypatch):
    def lacking(self):
        self.workloads = {f"{name}[{n}]": {} for name in self.workloads for n in (1, 2)}
        return {}

    monkeypatch.setattr(launcher, "lacking", lacking)
    command = ["gate", "trials", "--benchmark", "test_a.py::test_a", "--results", str(tmp_path)]
    assert [cli.main([*command, "--runs", runs]) for runs in "122"] == [DONE, INTERNAL, INTERNAL]  # none is slower
    points = read_record(trials.record_path(tmp_path)).points
    assert [point.series for point in points] == ["identical", "identical", "slowed", "slowed"]


def test_a_machine_that_never_decides_is_said(launcher, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(run, "canary", lambda: Reading(0.01, 2.0))  # waits for the core
    summary = tmp_path / "summary.md"
    assert try_it(tmp_path, "--runs", "3") == DONE
    assert try_it(tmp_path, "--runs", "4", "--summary", str(summary)) == INCONCLUSIVE
    assert "never decides on this class of machine: no verdict in 4 trials" in summary.read_text()


def test_what_the_patch_does_not_slow_is_refused(tmp_path, capsys):
    assert try_it(tmp_path, "--benchmark", "tensor_step") == 2
    assert "slowed.patch does not slow it" in capsys.readouterr().err

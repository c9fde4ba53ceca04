"""`reproduce doctor`: what works per fidelity, what is missing and how to get it; nothing that fails is a traceback."""

import importlib
import importlib.metadata
import json
import tomllib

import pytest

from ptdp_core.simulator.native import uncompiled
from reproduce.annex.doctor import command_doctor as doctor
from reproduce.cli import main
from results import ROOT
from tests.processes import python


def diagnosis(capsys):
    code = main(["doctor", "--json"])
    fidelities = json.loads(capsys.readouterr().out)["fidelities"]
    assert code == (0 if fidelities["simulated"]["works"] else 3)
    return fidelities


def check(fidelities, fidelity, what):
    (only,) = (check for check in fidelities[fidelity]["checks"] if check["what"] == what)
    return only


def test_as_text(said):
    text = said("doctor")
    assert "simulated: works" in text
    assert "simulated in" in text
    for fidelity in ("emulated", "measured"):
        assert f"\n{fidelity}: " in text
    assert max(map(len, text.splitlines())) <= 110


def test_without_the_tools_of_emulation(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    fidelities = diagnosis(capsys)
    assert fidelities["simulated"]["works"]
    assert not fidelities["emulated"]["works"]
    missing = [check["get"] for check in fidelities["emulated"]["checks"] if check["what"] == "a trial"]
    assert [sentence.split()[0] for sentence in missing] == ["ip", "tc"]
    slurm = check(fidelities, "measured", "Slurm")
    assert slurm["found"] is None
    assert not slurm["needed"]
    assert fidelities["measured"]["works"]


@pytest.mark.parametrize("error", [ModuleNotFoundError("No module named 'torch'"), OSError("libcudart.so: not found")])
def test_without_a_torch_that_loads(capsys, monkeypatch, error):
    def load(name, package=None):
        if name == "torch":
            raise error
        return importlib.__import__(name)

    monkeypatch.setattr(doctor.importlib, "import_module", load)
    fidelities = diagnosis(capsys)
    assert not fidelities["measured"]["works"]
    torch = check(fidelities, "measured", "torch")
    assert "pip install" in torch["get"]
    assert ("libcudart" in torch["get"]) == isinstance(error, OSError)


def test_every_package_that_the_project_depends_on_is_looked_for(capsys):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    looked_for = {check["what"] for fidelity in diagnosis(capsys).values() for check in fidelity["checks"]}
    assert {line.partition(">=")[0] for line in project["dependencies"]} <= looked_for


def test_without_a_package_that_simulation_needs(capsys, monkeypatch):
    version = importlib.metadata.version

    def lacking(name):
        if name == "pandas":
            raise importlib.metadata.PackageNotFoundError
        return version(name)

    monkeypatch.setattr(doctor.importlib.metadata, "version", lacking)
    fidelities = diagnosis(capsys)
    assert not fidelities["simulated"]["works"]
    assert check(fidelities, "simulated", "pandas")["get"].startswith("pip install")


def test_who_runs_the_simulator_s_inner_loops_is_said(capsys):
    found = check(diagnosis(capsys), "simulated", "inner loops")["found"]
    assert found is None or "fused pairs" in found
    with uncompiled():
        loops = check(diagnosis(capsys), "simulated", "inner loops")
    assert (loops["found"], loops["needed"]) == (None, False)
    assert "C compiler" in loops["get"]


@pytest.mark.parametrize("words", [("doctor",), ("plan", "--model", "1.7b", "--gpus", "8", "--batch", "16")])
def test_it_is_said_why_python_runs_the_inner_loops(words, tmp_path):
    results = () if words == ("doctor",) else ("--results", tmp_path)
    done = python("-m", "reproduce", *words, *results, env={"PTDP_NATIVE": "0"})
    said = done.stdout if words == ("doctor",) else done.stderr
    assert "PTDP_NATIVE=0 turns the compiled loops off; unset it" in " ".join(said.split())

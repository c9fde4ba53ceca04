"""A new artifact beyond the paper needs its table and its module, no more: one is put beside the others and used."""

import json

import pytest

from reproduce.cli import main
from reproduce.experiment import catalog, papers
from reproduce.experiment.claims import OURS
from results.records.errors import DONE

TABLE = """
[artifact]
title = "Sequence length, GPT-3 175B on 96 GPUs"
description = "Throughput per GPU against the sequence length."
quantities = ["model_throughput_per_gpu", "usual"]
columns = {seq = "s"}
x_axis = {parameter = "seq", label = "Sequence length", scale = "log2"}

[artifact.sweeps.paper]
batches = [12, 48]
x = {seq = [512, 1024, 2048]}
gpus = 96
layers = 96
hidden = 12288
heads = 96
vocab = 51200
p = 12
t = 8

[artifact.sweeps.laptop]
batches = [4, 8]
x = {seq = [512, 1024]}
gpus_per_node = 2
layers = 8
hidden = 6144
heads = 48
p = 4
t = 2

[artifact.sweeps."cpu gpus"]
batches = [4, 8]
x = {seq = [32, 64]}
p = 4

[values]
seconds = {metric = "iteration_time", along = "seq"}

[longer_with_s]
sentence = '''
Longer sequences
take longer.'''
tested = "longer from each s to the next"
scales = ["paper", "laptop"]
judged = {value = "seconds", rises = true}
shown = "seconds: {seconds:.2f}"
"""

MODULE = """
from reproduce.experiment.told import told
from reproduce.output.figures import line_plot

ARTIFACT = told(__name__, draw=line_plot)
"""


PAPER = """
title = "A paper of the test"
authors = ["Nobody"]
year = 2020
short = "toy"
citation = "nowhere"
plain_ids = ["*"]
ours = true
"""


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """The id of an artifact whose module stands in the folder of another paper."""
    import reproduce.papers

    folder = tmp_path / "toys" / "toy"
    folder.mkdir(parents=True)
    (folder / "fig_toy.py").write_text(MODULE)
    (folder / "fig_toy.toml").write_text(TABLE)
    (folder / "paper.toml").write_text(PAPER)
    monkeypatch.setattr(reproduce.papers, "__path__", [*reproduce.papers.__path__, str(folder.parent)])
    known = papers._folders()
    monkeypatch.setattr(papers, "_folders", lambda: (*known, folder))
    return "fig_toy"


def test_it_is_listed_described_run_and_judged(toy, tmp_path, said):
    results = str(tmp_path / "results")
    assert f"{toy}" in said("list")
    out = said("describe", toy)
    assert "not in the paper" in out
    assert "model-FLOPs throughput per GPU" in out
    assert "the paper's value" not in out
    assert main([toy, "--results", results]) == DONE
    record = json.loads((tmp_path / "results" / toy / "simulated" / "record.json").read_text())
    assert [claim["verdict"] for claim in record["claims"]] == ["holds"]
    assert {path.name for path in (tmp_path / "results" / toy / "simulated").iterdir()} >= {"figure.png", "table.md"}
    assert main(["verify", toy, "--results", results]) == DONE
    assert main(["report", "--results", results]) == DONE


def test_it_has_all_scales_and_fidelities(toy):
    artifact = catalog.load(toy)
    assert toy in catalog.ids()[catalog.ids().index("paper_claims") :]  # beyond the paper
    assert artifact.scales == ("paper", "laptop", "cpu", "gpus")
    assert set(artifact.fidelities) >= {"simulated", "emulated", "measured"}
    assert artifact.at("cpu").title == "Sequence length, 4 CPU processes"
    assert artifact.at("cpu").main.shown == "gigaFLOP/s"


def test_claims_that_are_ours_need_no_place_in_the_paper(toy):
    assert catalog.load(toy).claims[0].sentence == "Longer sequences take longer."
    assert catalog.load(toy).claims[0].place == OURS


def test_a_claim_stands_once(toy):
    with pytest.raises(ValueError, match="stands twice"):
        catalog.load(toy).claim(None, sentence="Again.", id="longer_with_s")(lambda results: None)


def test_a_claim_needs_a_sentence(toy):
    with pytest.raises(ValueError, match="has no sentence; needs a docstring; try without"):
        catalog.load(toy).claim(None)(lambda results: None)

"""Papers as folders: one of one's own runs without the simulator, and what is broken is named by file and line."""

import json
import shutil
import sys
from dataclasses import replace

import pytest

from reproduce.annex.papers.command_paper import EXAMPLE
from reproduce.cli import main
from reproduce.experiment import catalog, coverage, papers, published
from reproduce.experiment.claims import OURS
from reproduce.experiment.told import entries
from results.records.errors import DONE, USAGE, UsageError

ID = "mine/table_1"


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """The folder of a paper that `reproduce paper` made in the current folder."""
    monkeypatch.chdir(tmp_path)
    assert main(["paper", "mine"]) == DONE
    return tmp_path / "papers" / "mine"


def test_ten_numbers_give_table_figure_verdict_and_report(mine, said):
    assert "Does the paper hold? 1 of its 1 sentence holds." in said("all", "--paper", "mine", "--results", "r")
    folder = mine.parents[1] / "r" / "mine" / "table_1" / "derived"
    record = json.loads((folder / "record.json").read_text())
    values = [point["metrics"]["tokens_per_s"] for point in record["points"]]
    assert [(value["value"], value["origin"]) for value in values[:2]] == [(1510, "measured"), (2890, "measured")]
    assert [point["paper"]["tokens_per_s"]["value"] for point in record["points"]][:2] == [1500, 2900]
    assert {path.name for path in folder.iterdir()} >= {"figure.png", "table.md", "table.tex", "table.csv"}
    assert main(["verify", "--paper", "mine", "--results", "r"]) == DONE
    assert main(["report", "--paper", "mine", "--results", "r"]) == DONE
    assert "Title of the paper" in (mine.parents[1] / "r" / "report.html").read_text()


def test_changed_measurements_are_taken_anew(mine, said):
    assert main([ID, "--results", "r"]) == DONE
    table = mine / "table_1.csv"
    table.write_text(table.read_text().replace("1510", "3000"))
    catalog._artifact_of.cache_clear()
    catalog._readable.cache_clear()
    assert "1 points computed, 9 reused" in said(ID, "--results", "r")


def test_a_csv_file_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.csv").write_text("gpus,time_s,time_s_published\n8,1.5,1.4\n16,0.8,\n")
    assert main(["paper", "theirs", "my.csv"]) == DONE
    first, second = catalog.load("theirs/table_1").points()
    assert (first.parameters["gpus"], first.paper["time_s"].value, first.paper["time_s"].quantum) == (8, 1.4, 0.1)
    assert second.paper == {}
    assert catalog.load("theirs/table_1").main.unit == "s"


@pytest.mark.parametrize("name", ["Mine", "sc21", "a/b"])
def test_a_name_that_is_taken_or_none(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["paper", name]) == USAGE
    assert capsys.readouterr().err.count("\n") == 1


BROKEN = {
    "an unknown key": ("paper.toml", "year = 2024", "yeer = 2024", "line 3: unknown key 'yeer'; needs one of title"),
    "another kind of value": ("paper.toml", "year = 2024", 'year = "x"', "line 3: year = 'x'; needs a whole number"),
    "no TOML": ("paper.toml", "year = 2024", "year =", "line 3: Invalid value; needs TOML"),
    "a missing key": ("paper.toml", 'short = "Short name"\n', "", "line 1: lacks short; needs title, authors"),
    "a unit that is none": ("paper.toml", '"tokens/s"', '"apples"', "unit 'apples' of 'tokens_per_s'; needs one of 1"),
    "a missing column": ("table_1.csv", "tokens_per_s,", "tokens,", "line 1: has no column tokens_per_s; needs system"),
    "a cell that is no number": ("table_1.csv", "2890", "fast", "line 3: tokens_per_s is 'fast'; needs a number"),
    "a row with too few cells": ("table_1.csv", "16,2890,2900", "16", "line 3: has another number of cells"),
    "a point twice": ("table_1.csv", "ours,16", "ours,8", "line 3: is the point of line 2 again; needs other system"),
    "a claim without a bound": ("claims.toml", "at_most = 0.10", "", "line 3: the claim has no bound; needs a number"),
    "a claim of no table": ("claims.toml", "table_1", "table_2", "line 3: no table 'table_2'; needs one of table_1"),
    "an unknown way": ("claims.toml", "mean distance from 1 of", "median", "line 10: which = 'median'; needs one of"),
    "a share that is none": ("claims.toml", "at_most", 'short = "x"\nat_most', "line 11: short = 'x'; needs a number"),
    "rounding of nothing printed": (
        *("claims.toml", "at_most", "inexact = 0.1\nat_most"),
        "line 11: inexact = 0.1; needs over = 'published', of every value",
    ),
}


@pytest.mark.parametrize(("name", "old", "new", "said"), BROKEN.values(), ids=BROKEN)
def test_what_is_broken_is_named_and_the_other_papers_go_on(mine, name, old, new, said, capsys):
    shutil.copytree(mine, mine.with_name("other"))
    path = mine / name
    path.write_text(path.read_text().replace(old, new, 1))
    capsys.readouterr()
    assert main(["list"]) == USAGE
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert line.startswith(f"reproduce: {path}, {said}") or (
        line.startswith(f"reproduce: {path}, line") and said in line
    )
    assert "other/table_1" in printed.out
    assert "fig_interleaved" in printed.out
    assert ID not in printed.out.split()


MODULE = '''"""Sequences of two lengths."""

from reproduce.experiment import quantities as q
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.claims import Judgement, holds_if
from reproduce.experiment.sweep import Sweep
from reproduce.output.figures import line_plot

ARTIFACT = Artifact(
    id="mine/fig_lengths",
    label="Figure 2",
    section="5",
    title="Two lengths",
    description="Throughput per GPU against the sequence length.",
    quantities=(q.THROUGHPUT, q.ITERATION),
    sweeps={"paper": Sweep.published("mine/fig_lengths", x="seq")},
    x_axis=q.XAxis("seq", "Sequence length"),
    draw=line_plot,
)


@ARTIFACT.claim("longer")
def longer(results) -> Judgement:
    """Longer sequences take longer."""
    first, second = results.by_batch(q.ITERATION, "seq")[16].values()
    return holds_if(second > first, f"{first:.2f} and {second:.2f} s")
'''
ENTRY = {
    "paper": "Figure 2",
    "how": "text",
    "configuration": {"layers": 4, "hidden": 256, "heads": 4, "p": 2, "t": 1, "b": 1, "gpus": 2},
    "values": {"throughput_per_gpu": {"unit": "FLOP/s", "factor": 1e12, "quantum": 1}},
    "rows": [{"seq": seq, "B": 16, "throughput_per_gpu": 80} for seq in (512, 2048)],
}


@pytest.fixture
def with_module(mine, monkeypatch):
    """The same paper with a figure that is simulated: its module, and what it compares with."""
    import reproduce.papers

    monkeypatch.setattr(reproduce.papers, "__path__", list(reproduce.papers.__path__))
    before = set(sys.modules)
    (mine / "fig_lengths.py").write_text(MODULE)
    (mine / "_helpers.py").write_text("# of the modules of this paper\n")
    (mine / "published.json").write_text(json.dumps({"artifacts": {"fig_lengths": ENTRY}}))
    (mine / "paper.toml").write_text((mine / "paper.toml").read_text() + "\n[configuration]\nseq = 512\nvocab = 512\n")
    published.document.cache_clear()
    yield mine
    for name in set(sys.modules) - before:
        if name.startswith("reproduce.papers.mine"):
            del sys.modules[name]


def test_a_paper_of_ones_own_with_a_module_is_listed_run_judged_and_reported(with_module, said):
    assert "mine/fig_lengths" in said("list", "--paper", "mine")
    assert "mine/fig_lengths" in said("all", "--paper", "mine", "--results", "r")
    record = json.loads((with_module.parents[1] / "r/mine/fig_lengths/simulated/record.json").read_text())
    assert [point["parameters"]["seq"] for point in record["points"]] == [512, 2048]
    assert [point["paper"]["throughput_per_gpu"]["value"] for point in record["points"]] == [80e12, 80e12]
    assert "Longer sequences take longer." in said("verify", "--paper", "mine", "--results", "r")
    assert "2 of 2 artifacts" in said("report", "--paper", "mine", "--results", "r")
    assert main(["describe", "mine/fig_lengths"]) == DONE


BROKEN_MODULES = {
    "no Python": ("label=", "label=:", "fig_lengths.py, line 11: SyntaxError: invalid syntax"),
    "a name that is not there": ("q.ITERATION)", "q.TIME)", "fig_lengths.py, line 15: AttributeError: module"),
    "no artifact": ("ARTIFACT = Artifact", "FIGURE = Artifact", "fig_lengths.py, line 22: NameError: name 'ARTIFACT'"),
    "another kind": ("@ARTIFACT", "ARTIFACT = 3\n@F", "line 23: NameError"),
    "another id": ("mine/fig_lengths", "fig_lengths", "fig_lengths.py, line 9: id='fig_lengths'; needs the paper's"),
    "no published values": ('published("mine/fig_lengths"', 'published("mine/fig_x"', "line 16: KeyError: 'fig_x'"),
}


@pytest.mark.parametrize(("old", "new", "message"), BROKEN_MODULES.values(), ids=BROKEN_MODULES)
def test_what_is_broken_in_a_module_is_one_line_and_the_other_papers_go_on(
    with_module, old, new, message, said, capsys
):
    path = with_module / "fig_lengths.py"
    path.write_text(MODULE.replace(old, new, 1))
    for command in (["list"], ["verify", "--paper", "mine", "--results", "r"], ["all", "--paper", "mine"]):
        capsys.readouterr()
        assert main(command) != DONE
        printed = capsys.readouterr()
        assert message in printed.err.splitlines()[0]
        assert "internal error" not in printed.err
        assert "mine/table_1" not in printed.out
    assert "fig_interleaved" in said("list", code=USAGE)


TABLE = """
[artifact]
label = "Figure 2"
section = "5"
title = "Two lengths"
description = "Throughput per GPU against the sequence length."
quantities = ["throughput_per_gpu", "iteration_time"]
x_axis = {parameter = "seq", label = "Sequence length"}

[artifact.sweeps.paper]
published = true
x = "seq"

[longer]
tested = "longer"
rule = "ours"
"""
TOLD = """
from reproduce.experiment.told import told
from reproduce.output.figures import line_plot

ARTIFACT = told(__name__, draw=line_plot)
"""
BROKEN_TABLES = {
    "an unknown field": ("title", "titel", "line 5: unknown key 'titel'; needs one of label, section, title, "),
    "a missing field": ('title = "Two lengths"\n', "", "line 2: lacks title; needs title, description"),
    "a field of another kind": ('"Two lengths"', "2", "line 5: title = 2; needs a text in quotes"),
    "a metric that is none": ("iteration_time", "iteration_tim", "quantity 'iteration_tim'; did you mean 'iteration_t"),
    "an unknown part of an axis": (
        'label = "Seq',
        'lable = "Seq',
        "line 8: unknown key 'lable'; needs one of parameter, label, scale; did you mean 'label'",
    ),
    "an axis of no scale": (
        'Sequence length"}',
        'x", scale = "log3"}',
        "scale='log3' of an x axis; needs one of linear",
    ),
    "levels that are none": ('x = "seq"', "x = [1, 2]", "line 2: [artifact]: 'int' object has no attribute 'items'"),
    "no levels": ('x = "seq"', "", "line 2: [artifact]: the sweep 'paper' lacks x; needs levels"),
    "no sweep": ('[artifact.sweeps.paper]\npublished = true\nx = "seq"', "", "lacks sweeps; needs one"),
    "a sweep that is no table": (
        "[artifact.sweeps.paper]",
        "[artifact.sweeps]",
        "no scale 'published'; needs one of p",
    ),
    "no scale": ("sweeps.paper", "sweeps.papre", "line 2: [artifact]: no scale 'papre'; needs one of paper, laptop"),
    "no published values": ("published = true", 'configuration = "fig_6"', "line 2: [artifact]: there is no 'fig_6'"),
    "a parameter that is none": (
        "published = true",
        "hiden = 128",
        "(reproduce simulate --schema); did you mean 'hidden'",
    ),
    "a parameter of several values": ("published = true", "p = [1, 2]", "line 11: p = [1, 2]; needs a number, a text"),
    "levels of no parameter": ('x = "seq"', "x = {sequ = [1]}", "line 12: unknown key 'sequ'; needs one of like, con"),
    "another kind in the second of two sweeps": (
        'x = "seq"',
        'x = "seq"\n\n[artifact.sweeps."cpu gpus"]\nseq = 64\nx = {seq = [8]}\npublished = 2',
        "line 17: published = 2; needs true or false",
    ),
    "a level of no parameter": (
        'x = "seq"',
        'x = [{label = "", key = "", sequ = 1}]',
        "line 12: unknown key 'sequ'; needs one of",
    ),
}
BROKEN_CLAIMS = {
    "an unknown key": ("tested", "testd", "line 15: unknown key 'testd'; needs one of tested, rule, place, by"),
    "another kind": ('"longer"', "2", "line 15: tested = 2; needs a text in quotes"),
    "no rule": ('"ours"', '"our"', "line 14: rule='our' of claim 'longer'; needs one of rounding"),
    "no scale": (
        'rule = "ours"',
        'scales = ["lapton"]',
        "line 14: scale 'lapton' of claim 'longer'; needs one of paper",
    ),
    "no fidelity": (
        'rule = "ours"',
        'fidelity = "guessed"',
        "line 14: fidelity='guessed' of claim 'longer'; needs one of",
    ),
    "no claim whose sentence it has": (
        'rule = "ours"',
        'sentence_of = "shorter"',
        "line 14: sentence_of = 'shorter'; needs a claim told before it",
    ),
    "no table": ("[longer]", "[shorter]", "line 1: claim 'longer' has no table in fig_lengths.toml; needs one"),
}
JUDGE = '''

@ARTIFACT.judge
def longer(results):
    """Longer sequences take longer."""
'''


def test_a_figure_told_in_a_table_is_the_one_told_in_its_module(with_module):
    (with_module / "fig_lengths.toml").write_text(TABLE)
    (with_module / "fig_lengths.py").write_text(TOLD)
    told = catalog.load("mine/fig_lengths")
    names = {}
    exec(MODULE, names)
    assert replace(told, paper="sc21", cluster="selene", sweeps={}) == replace(
        names["ARTIFACT"], claims=[], sweeps={}, paper="sc21", cluster="selene"
    )
    assert told.points() == names["ARTIFACT"].points()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [*BROKEN_TABLES.values(), *BROKEN_CLAIMS.values()],
    ids=[*BROKEN_TABLES, *(f"of a claim, {name}" for name in BROKEN_CLAIMS)],
)
def test_what_is_broken_in_a_table_is_one_line(with_module, old, new, message, refused):
    (with_module / "fig_lengths.py").write_text(TOLD + JUDGE)
    (with_module / "fig_lengths.toml").write_text(TABLE.replace(old, new, 1))
    line = refused("describe", "mine/fig_lengths")
    assert "fig_lengths.toml, line " in line
    assert message in line


def test_a_model_without_sequence_length_names_where_it_is_missing(with_module, refused):
    path = with_module / "paper.toml"
    path.write_text(path.read_text().replace("seq = 512\n", ""))
    assert "paper.toml, line 1: lacks seq; mine/fig_lengths needs them in [configuration]" in refused("list")


def test_two_claims_of_one_id(mine, refused):
    path = mine / "claims.toml"
    path.write_text(path.read_text() + path.read_text().partition("\n\n")[2])
    assert "line 12: claim 'tokens_per_s_as_published' stands in line 3 already" in refused("list", "--paper", "mine")


def test_an_unknown_paper():
    with pytest.raises(UsageError, match=r"unknown paper 'megascal'; needs one of sc21.*did you mean 'megascale'"):
        papers.paper("megascal")


def test_papers_stand_by_year_and_ours_last():
    names = ["sc21", "korthikanti", "llama3", "megascale", "zerobubble", "beyond"]
    assert [paper.name for paper in papers.papers()] == names


def test_ids_begin_with_the_papers_name_but_for_those_that_had_none():
    assert "fig_interleaved" in catalog.ids("sc21")
    assert "table_selective_recompute" in catalog.ids("korthikanti")
    assert "zerobubble/table_5" in catalog.ids()
    assert catalog.load("sc21/fig_interleaved").id == "fig_interleaved"
    assert catalog.load("zerobubble/table_4").cluster == "a100-80-roce"


@pytest.mark.parametrize("paper", papers.papers(), ids=lambda paper: paper.name)
def test_an_artifact_has_the_id_of_its_module(paper):
    assert {catalog.load(paper.id_of(name)).id for name in paper.names} == set(map(paper.id_of, paper.names))
    assert {catalog.load(id).paper for id in catalog.ids(paper.name)} == {paper.name}


def test_the_example_has_ten_numbers():
    assert EXAMPLE.count("\n") == 11


@pytest.mark.parametrize("paper", papers.papers(), ids=lambda paper: paper.name)
def test_every_claim_that_is_data_is_one_of_its_paper(paper):
    known = {claim.id: claim for id in catalog.ids(paper.name) for claim in catalog.load(id).claims}
    for entry in entries(paper):
        assert ("reason" in entry) != (entry["id"] in known)
        assert "reason" in entry or known[entry["id"]].place == (OURS if paper.ours else entry["place"])


def test_four_papers_have_two_hundred_statements_and_six_hundred_numbers():
    counts = {paper.name: coverage.counts(paper.name) for paper in papers.papers() if not paper.ours}
    assert sum(count["judged"] for count in counts.values()) >= 200
    assert counts["zerobubble"]["statements"] >= 31
    assert counts["korthikanti"]["statements"] >= 20


def test_the_order_of_a_paper_s_files_is_that_of_their_names():
    """Not the file system's, which is another on every machine: the first without results is what to run next."""
    named = catalog.named_by_files("sc21")
    assert named == tuple(sorted(catalog.ids("sc21")))
    assert named[0] == "fig_bubble"

"""Results of another cluster than the paper's: a folder of their own, and no part in whether the paper holds."""

from dataclasses import replace

import pytest

import reproduce
from reproduce.annex.compare import compare
from reproduce.cli import main
from reproduce.experiment import catalog
from reproduce.output.verdicts import claims_of
from reproduce.running import runner
from reproduce.running.fidelities import evaluator
from results import ROOT
from results.records import ClusterRef, read_record


def test_another_cluster_leaves_the_reproduction_and_its_answer_alone(tmp_path, capsys, as_json):
    assert main(["fig_interleaved", "--results", str(tmp_path), "-q"]) == 0
    kept = tmp_path / "fig_interleaved" / "simulated" / "record.json"
    before = kept.read_bytes()
    said = as_json("report", "--results", tmp_path)["answer"]
    assert main(["fig_interleaved", "--results", str(tmp_path), "--cluster", "h100", "-q"]) == 0
    capsys.readouterr()
    assert kept.read_bytes() == before
    assert as_json("report", "--results", tmp_path)["answer"] == said
    there = read_record(tmp_path / "clusters" / "h100" / "fig_interleaved" / "simulated" / "record.json")
    assert there.provenance.cluster.name == "h100"


def test_each_paper_has_its_own_cluster(tmp_path):
    for id, cluster in (("fig_interleaved", "selene"), ("zerobubble/table_4", "a100-80-roce")):
        artifact = catalog.load(id)
        assert not runner.plan(artifact, tmp_path, cluster=cluster.upper()).elsewhere
        assert runner.plan(artifact, tmp_path, cluster=f"{tmp_path}/{cluster}.toml").elsewhere
        assert runner.plan(artifact, tmp_path).folder == tmp_path / id / "simulated"
    assert not runner.plan(catalog.load("fig_bubble"), tmp_path, "derived", cluster="h100").elsewhere


SIMULATED_WITH_NOTES = [
    artifact.id
    for artifact in map(catalog.load, catalog.ids())
    if artifact.fidelities[0] == "simulated" and callable(artifact.notes)
]


@pytest.mark.parametrize("id", SIMULATED_WITH_NOTES)
def test_notes_of_another_cluster_need_no_published_values(id):
    plan = runner.plan(catalog.load(id), ROOT, cluster="h200")
    evaluate = evaluator(plan)
    points, _, notes = runner.judge_points(evaluate, tuple(map(evaluate.evaluate, plan.points)))
    assert not any(point.paper for point in points)
    if any(point.paper for point in plan.points):
        assert f"the paper's own cluster ({plan.artifact.cluster}): not compared with h200" in notes[-1]


def test_a_record_of_another_cluster_judges_no_paper(figure_12):
    provenance = replace(figure_12.record.provenance, cluster=ClusterRef("h100", "1" * 64))
    assert claims_of([figure_12.record])
    assert not claims_of([replace(figure_12.record, provenance=provenance)])


def test_verify_and_all_do_not_say_of_another_cluster_that_the_paper_holds(tmp_path, said, as_json):
    answer = as_json("verify", "fig_interleaved", "--cluster", "h100", "--fresh")["answer"]
    assert answer.startswith("Simulated on h100, on which no paper measured: ")
    printed = said("all", "--paper", "megascale", "--cluster", "selene", "--results", tmp_path, "-q")
    assert "hold?" not in printed
    assert "on this cluster" in printed


def test_both_can_be_compared_with_what_another_folder_has(tmp_path, figure_12):
    for folder in (tmp_path, tmp_path / "clusters" / "h100"):
        place = folder / "fig_interleaved" / "simulated"
        place.mkdir(parents=True)
        (place / "record.json").write_bytes(figure_12.files[0].read_bytes())
    names = [key.id for key in compare.load(tmp_path)]
    assert sorted(names) == ["clusters/h100/fig_interleaved", "fig_interleaved"]


def test_python_runs_what_the_command_runs(tmp_path):
    record = reproduce.run("megascale/table_2", results=tmp_path)
    assert record.provenance.cluster.name == catalog.load("megascale/table_2").cluster == "a100-80"

"""The list of the paper's figures, tables and sentences: each has something that stands for it, and it exists."""

import pytest

from reproduce.experiment import catalog, coverage, papers
from reproduce.experiment.artifact import NOT_IN_PAPER
from reproduce.experiment.claims import OURS

LISTED = coverage.statements(papers.paper(papers.FIRST))
CLAIMS = [name for statement in LISTED for name in statement.get("claims", ())]


def test_a_statement_stands_once():
    assert len({statement["id"] for statement in LISTED}) == len(LISTED)


@pytest.mark.parametrize("statement", LISTED, ids=lambda statement: statement["id"])
def test_every_statement_is_shown_or_judged_or_says_why_not(statement):
    shown, judged = statement.get("artifact"), statement.get("claims", ())
    assert bool(shown or judged) != bool(statement.get("reason"))
    assert statement.get("text") or judged, "needs the paper's words, since no claim has them"
    assert statement["kind"] == "statement" or (statement["kind"] in ("figure", "table") and shown)


def test_what_stands_for_a_statement_exists():
    artifacts = [catalog.load(id) for id in catalog.ids()]
    known = {f"{artifact.id}.{claim.id}" for artifact in artifacts for claim in artifact.claims}
    assert set(CLAIMS) <= known
    assert {statement["artifact"] for statement in LISTED if "artifact" in statement} <= set(catalog.ids())


@pytest.mark.parametrize("id", catalog.ids(papers.FIRST))
def test_every_artifact_and_claim_of_the_paper_stands_for_a_statement(id):
    """A claim that is new needs its sentence on the list."""
    artifact = catalog.load(id)
    shown = {statement.get("artifact") for statement in LISTED} | {name.partition(".")[0] for name in CLAIMS}
    assert artifact.section == NOT_IN_PAPER or id in shown
    assert {f"{id}.{claim.id}" for claim in artifact.claims if claim.place != OURS} <= set(CLAIMS)


def test_all_figures_and_tables_are_on_the_list():
    shown = {statement["place"]: statement["artifact"] for statement in LISTED if statement["kind"] != "statement"}
    assert {f"Figure {n}" for n in range(1, 19)} | {"Table 1", "Table 2"} == set(shown)
    assert all(catalog.load(artifact).label == place for place, artifact in shown.items())


def test_takeaways_and_equations_are_on_the_list():
    ids = {statement["id"] for statement in LISTED}
    assert {"takeaway_1", "takeaway_2", "takeaway_3", "eq_1", "eq_2", "eq_3", "eq_4"} <= ids


def test_counts_add_up():
    counts = coverage.counts()
    assert counts["statements"] == counts["judged"] + counts["reasons"]
    assert counts["judged"] >= 40
    assert counts["reasons"] >= 1

"""Every claim's verdict flips exactly where its tolerance says, in each of its clauses."""

from pathlib import Path

import pytest

from reproduce.experiment import catalog
from reproduce.experiment.artifact import IN_THE_PAPER
from reproduce.experiment.bounded import Bounded
from reproduce.experiment.claims import NOTHING
from tests.reproduce.tolerances.bounds import edges_of_bounds
from tests.reproduce.tolerances.edges import CONTRADICTED, INCONSISTENT, blanks, edges_in

FOLDER = Path(__file__).parent


def edges_of(artifact, points):
    """The edges of an artifact's claims; those of a claim also stand for the same claim on the paper's own points."""
    edges = {
        claim.id: list(edges_of_bounds(claim.judge, points))
        for claim in artifact.claims
        if isinstance(claim.judge, Bounded)
    }
    if (FOLDER / f"{artifact.id}.py").is_file():
        edges |= edges_in(artifact.id)
    ids = [claim.id for claim in artifact.claims]
    return {id: edges[id.removesuffix(IN_THE_PAPER)] for id in ids if id.removesuffix(IN_THE_PAPER) in edges} | edges


def problems(artifact):
    """What is wrong with the artifact's claims: no edges, or another verdict than theirs."""
    points = blanks(artifact.points())
    edges = edges_of(artifact, points)
    yield from (f"{artifact.id}.{id}: no such claim" for id in edges.keys() - {claim.id for claim in artifact.claims})
    for claim in artifact.claims:
        nothing = (claim.tolerance or "").startswith(NOTHING)  # then no number makes another verdict
        if claim.id not in edges and not nothing:
            yield f"{artifact.id}.{claim.id}: needs EDGES[{claim.id!r}] in tests/reproduce/tolerances/{artifact.id}.py"
        for edge in edges.get(claim.id, ()):
            if edge.words not in f"{claim.tolerance} {claim.sentence}" and not nothing:
                yield f"{artifact.id}.{claim.id}: does not say {edge.words!r}"
            for x, holds in edge.probes():
                judged, expected = edge.judged(claim, points, x), edge.inside if holds else outside(claim, edge)
                expected = "not testable here" if nothing else expected
                if judged.verdict != expected:
                    yield (
                        f"{artifact.id}.{claim.id}, {edge.words!r}: {judged.verdict} at {x!r}, should be {expected}; "
                        f"{judged.explanation}"
                    )


def outside(claim, edge):
    """The verdict where the claim does not hold.

    A paper whose own points contradict it is inconsistent; a simulation contradicts nothing that it was set with.
    """
    if claim.set_with and claim.fidelity == "simulated":
        return "inconclusive"
    return INCONSISTENT if claim.id.endswith(IN_THE_PAPER) and edge.outside == CONTRADICTED else edge.outside


@pytest.mark.parametrize("id", catalog.ids())
def test_verdicts_flip_where_the_claims_say(id):
    assert list(problems(catalog.load(id))) == []


def test_a_claim_without_edges_is_found(small):
    assert list(problems(small)) == [
        "fig_squares.never: needs EDGES['never'] in tests/reproduce/tolerances/fig_squares.py"
    ]

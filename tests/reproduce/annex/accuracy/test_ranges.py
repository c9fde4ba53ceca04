"""How far the ranges of a cluster's numbers move what nothing is published of, and that every number has its margin."""

import json

import pytest

from ptdp_core.simulator import load_cluster, read_parameters
from reproduce.annex.accuracy import ranges
from reproduce.annex.accuracy.accuracy import evaluators_of
from reproduce.annex.accuracy.published_points import published_points
from reproduce.experiment import catalog, margins
from reproduce.experiment.papers import FIRST
from reproduce.experiment.quantities import RANGED, made_of, names_of
from results import ROOT

REFERENCE = ROOT / "results" / "reference"


def factors(ids, names=None):
    artifacts = [catalog.load(id) for id in ids]
    parameters = {name: p for name, p in read_parameters("selene").items() if names is None or name in names}
    published = published_points(artifacts)
    return ranges.factors(published, evaluators_of(artifacts, "selene"), load_cluster("selene"), parameters)


def test_a_number_that_only_computation_knows_moves_no_message():
    """The plateau of GEMMs from 0.77 to 0.70 and 0.82: 10% of the rate inside them, and nothing of what is sent."""
    moved = factors(["fig_tensor_vs_data"], ["gemm_plateau"])
    plateau = read_parameters("selene")["gemm_plateau"]
    assert 1 < moved["gemm_throughput"]["value"] <= plateau.value / plateau.low * 1.001
    assert moved["gemm_throughput"]["ratio"] < moved["gemm_throughput"]["value"]  # all points move alike
    assert "tensor_communication_time" not in moved


def test_two_numbers_add_up_in_quadrature():
    one, other, both = (
        factors(["fig_tensor_vs_data"], names)["gemm_throughput"]["value"] - 1
        for names in (["gemm_plateau"], ["gemm_wave_efficiency"], ["gemm_plateau", "gemm_wave_efficiency"])
    )
    assert max(one, other) <= both <= one + other


@pytest.mark.slow
def test_the_committed_factors_follow_from_the_cluster_s_file():
    simulated = [id for id in catalog.ids(FIRST) if "simulated" in catalog.load(id).fidelities]
    committed = json.loads(margins.FILE.read_text())["ranged"]["factors"]
    again = factors(simulated)
    assert committed.keys() == again.keys()
    for name, factor in again.items():
        assert committed[name] == pytest.approx(factor), name


def test_every_number_that_is_ranged_has_its_factors():
    assert names_of(*RANGED) == margins.read("selene").ranged.keys()
    assert all(factor["value"] >= 1 for factor in margins.read("selene").ranged.values())


def test_every_simulated_number_of_the_references_says_what_its_margin_is_made_of():
    """M4: one table; a number that is in no row of it would decide nothing."""
    missing = {}
    for path in sorted(REFERENCE.rglob("simulated/record.json")):
        for point in json.loads(path.read_text())["points"]:
            for name, metric in point["metrics"].items():
                if metric["origin"] == "simulated" and made_of(name) is None:
                    missing[name] = path.parent.parent.name
    assert missing == {}


def test_the_page_of_margins_has_these_factors():
    """docs/margins.md: in percent, of a value and of a ratio."""
    page = (ROOT / "docs" / "margins.md").read_text()
    ranged = margins.read("selene").ranged
    rows = {"bubble over computing time": "bubble_fraction", "bubble seconds": "bubble_time"}
    for words, name in {**rows, "rate inside GEMMs": "gemm_throughput"}.items():
        value, ratio = (100 * (ranged[name][of] - 1) for of in ("value", "ratio"))
        assert f"| {words} | {value:.2g}% | {ratio:.2g}% |" in page

"""`reproduce verify`: verdicts, reuse of results, JSON; and the claims of the paper as a whole."""

from dataclasses import replace
from functools import partial

import pytest

from reproduce.cli import main
from reproduce.commands import verify
from reproduce.experiment.judging import judge
from reproduce.experiment.results import MissingResultError, Results
from reproduce.papers.sc21 import paper_claims
from reproduce.papers.sc21.paper_claims import ARTIFACT as PAPER
from reproduce.papers.shared import paper_configurations, paper_formulas, paper_points
from results.records import VERDICTS, Metric, errors
from tests.points import made

LONG = "When " + "many words follow each other " * 20 + "the end."


@pytest.fixture
def verified(as_json, tmp_path):
    """What `verify` prints with --json, with results in a folder of the test's."""
    return partial(as_json, "verify", "--results", tmp_path)


@pytest.mark.usefixtures("load_small")
class TestCommand:
    def test_prints_every_claim_as_json(self, verified):
        document = verified("fig_squares")
        assert document["exit_code"] == errors.DONE
        (claim,) = document["claims"]
        assert claim == {
            "artifact": "fig_squares",
            "paper": "Figure 0",
            "id": "never",
            "sentence": "Never.",
            "place": "Section 0",
            "fidelity": "derived",
            "tested_at": "derived",
            "tolerance": None,
            "verdict": "contradicted",
            "explanation": "x=5 gives 25.0",
            "numbers": {},
            "by": "derived",
        }
        assert document["counts"] == {**dict.fromkeys(VERDICTS, 0), "contradicted": 1}
        assert document["artifacts"] == [
            {"id": "fig_squares", "fidelity": "derived", "points": 5, "computed": 5, "reused": 0, "failed": 0}
        ]
        assert document["coverage"] is None  # of the whole paper only

    def test_strict_exits_with_5(self, verified):
        verified("fig_squares", "--strict", code=errors.CONTRADICTED)

    def test_writes_nothing(self, tmp_path, verified):
        verified("fig_squares")
        assert list(tmp_path.iterdir()) == []

    def test_reuses_what_an_earlier_run_finished(self, tmp_path, said, verified, counter):
        said("fig_squares", "--results", tmp_path)
        counter.calls.clear()
        document = verified("fig_squares")
        assert (document["artifacts"][0]["reused"], counter.calls) == (5, [])
        assert document["claims"][0]["explanation"] == "x=5 gives 25.0"
        document = verified("fig_squares", "--fresh")
        assert (document["artifacts"][0]["reused"], len(counter.calls)) == (0, 5)

    def test_a_failed_point_exits_with_4_and_makes_its_claims_inconclusive(self, verified, counter):
        counter.fail_at = {5: RuntimeError("broken")}
        document = verified("fig_squares", "--strict", code=errors.POINTS_FAILED)
        assert document["artifacts"][0]["failed"] == 1
        assert document["counts"]["inconclusive"] == 1

    def test_an_invalid_point_counts_as_failed(self, verified, counter):
        counter.fail_at = {5: ValueError("no such configuration")}
        document = verified("fig_squares", code=errors.POINTS_FAILED)
        assert document["artifacts"][0]["failed"] == 1

    def test_an_invalid_record_exits_with_8(self, tmp_path):
        record = tmp_path / "fig_squares" / "derived" / "record.json"
        record.parent.mkdir(parents=True)
        record.write_text("{}")
        assert main(["verify", "fig_squares", "--results", str(tmp_path)]) == errors.INVALID_RESULTS
        assert record.read_text() == "{}"

    def test_terminal_has_verdict_tolerance_numbers_and_counts(self, tmp_path, said):
        out = said("verify", "fig_squares", "--results", tmp_path)
        assert "contradicted  never  [Section 0; derived]" in out
        assert '"Never."' in out
        assert out.strip().endswith("0 of 1 sentence hold; 1 does not.")

    def test_shows_only_claims_with_the_verdict_asked_for(self, tmp_path, verified, capsys):
        document = verified("fig_squares", "--verdict", "contradicted")
        assert [claim["id"] for claim in document["claims"]] == ["never"]
        asked = ("fig_squares", "--results", str(tmp_path), "--verdict")
        assert main(["verify", *asked, "too near to call"]) == errors.NOTHING_SELECTED
        assert main(["verify", *asked, "holds"]) == errors.NOTHING_SELECTED
        assert "no claim has the verdict 'holds'. 0 of 1 sentence hold; 1 does not." in capsys.readouterr().err


def test_verdicts_are_held_against_those_committed(said, verified, tmp_path, monkeypatch):
    assert verified("fig_bubble", "--expected")["unexpected"] == []
    monkeypatch.setattr(verify, "REFERENCE", tmp_path)
    document = verified("fig_bubble", "--expected", code=errors.REGRESSED)
    assert document["exit_code"] == errors.REGRESSED
    assert document["unexpected"][0].endswith("; not among the committed ones")
    printed = said("verify", "fig_bubble", "--expected", "--results", tmp_path, code=errors.REGRESSED)
    assert document["unexpected"][0] in printed


def test_terminal_shortens_sentences_and_json_does_not(tmp_path, said, verified, small, monkeypatch):
    long = replace(small, claims=(replace(small.claims[0], sentence=LONG),))
    monkeypatch.setattr("reproduce.experiment.catalog.load", lambda id, commands=(): long)
    out = said("verify", "fig_squares", "--results", tmp_path)
    assert "the end." not in out
    assert "..." in out
    assert max(map(len, out.splitlines())) <= verify.WIDTH
    assert verified("fig_squares")["claims"][0]["sentence"] == LONG


def test_an_artifact_named_twice_is_checked_once(verified):
    artifacts = verified("fig_gpipe_timeline", "fig_gpipe_timeline")["artifacts"]
    assert [artifact["id"] for artifact in artifacts] == ["fig_gpipe_timeline"]


# ------------------------------------------------------------------------------------- the claims of the whole paper


def results(speeds, oom=(), failed=()):
    """All points of `PAPER`: FLOP/s by a text their key contains, the last that fits; else 1."""
    points = []
    for point in PAPER.points("paper"):
        status = "oom" if any(part in point.key for part in oom) else "ok"
        status = "failed" if any(part in point.key for part in failed) else status
        value = ([speed for part, speed in speeds.items() if part in point.key] or [1.0])[-1]
        metrics = {} if status != "ok" else {"throughput_per_gpu": Metric(value, "FLOP/s", "simulated")}
        points.append(made(point.key, metrics, status, series=point.series, label=point.label, **point.parameters))
    return Results(tuple(points), "simulated")


def test_points_are_legal_and_claims_well_formed():
    points = PAPER.points("paper")
    assert all(claim.tolerance for claim in PAPER.claims)
    for point in points:
        values = point.parameters
        assert int(str(values["B"])) % (int(str(values.get("d", 1))) * int(str(values["b"]))) == 0


def test_takeaway_2_is_judged_on_every_split_of_64_gpus():
    splits = [
        tuple(int(str(point.parameters[k])) for k in "ptd")
        for point in PAPER.points("paper")
        if point.series == paper_points.MODEL_PARALLEL
    ]
    assert {p * t * d for p, t, d in splits} == {64}
    assert (2, 1, 32) in splits
    assert (8, 8, 1) in splits


@pytest.mark.parametrize(
    ("speeds", "oom", "verdict"),
    [
        ({"takeaway_2:_p=2,_t=1,": 2.0}, ("t=1,_d=64",), "holds"),
        ({"takeaway_2:_p=1,_t=2,": 2.0}, ("t=1,_d=64",), "holds"),  # M counts, not how it is split
        ({"takeaway_2:_p=2,_t=1,": 2.0, "takeaway_2:_p=4,_t=1,": 1.999}, ("t=1,_d=64",), "holds"),
        ({"takeaway_2:_p=2,_t=1,": 2.0, "takeaway_2:_p=4,_t=1,": 2.001}, ("t=1,_d=64",), "contradicted"),
        ({"takeaway_2:_p=4,_t=1,": 2.0}, ("t=1,_d=64",), "contradicted"),
        ({"takeaway_2:_p=2,_t=1,": 2.0}, (), "contradicted"),  # M=1 fits and is slower
    ],
)
def test_takeaway_2(speeds, oom, verdict):
    assert paper_claims.takeaway_2(results(speeds, oom)).verdict == verdict


def test_what_does_not_fit_is_left_out_and_what_failed_is_not():
    best = {"t=8": 2.0, "t=16": 3.0}
    assert paper_claims.takeaway_1(results(best)).verdict == "contradicted"
    assert paper_claims.takeaway_1(results(best, oom=("t=16",))).verdict == "holds"
    with pytest.raises(MissingResultError, match="failed"):
        paper_claims.takeaway_1(results(best, failed=("t=16",)))
    (claim,) = (claim for claim in PAPER.claims if claim.id == "takeaway_1")
    assert judge(claim, results(best, failed=("t=16",))).verdict == "inconclusive"


@pytest.mark.parametrize(
    "judged",
    [
        paper_formulas.more_microbatches_less_flush,
        paper_formulas.layers_of_devices,
        paper_formulas.optimal_checkpoints,
        paper_formulas.eq_4_approximates,
        paper_formulas.flops_per_iteration,
        paper_formulas.pipeline_up_to_layers,
        paper_formulas.data_parallel_to_1536,
        paper_configurations.needs_both_kinds,
        paper_formulas.mostly_gemms,
        paper_formulas.eq_3_is_a_lower_bound,
        paper_formulas.parameters_by_eq_2,
        paper_configurations.data_parallelism_needs_memory,
    ],
)
def test_what_follows_from_formulas_holds(judged):
    assert judged(Results((), "derived")).verdict == "holds"

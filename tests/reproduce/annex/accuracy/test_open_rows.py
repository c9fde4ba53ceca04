"""The open rows: what was measured is each sealed row's, and the published blind scores follow from it."""

import pytest

from ptdp_core.config import TrainingConfig
from reproduce.annex.accuracy import open_rows, sealed
from results import ROOT
from results.records import read_record

SOURCES = ("flagperf", "nemo_h100_fp8", "llama405b_paper")
BLIND = ROOT / "results" / "reference" / "blind" / "modern"
# Rows, mean error, bias, share inside and runs called out of memory, as docs/blind.md has them.
PUBLISHED = {
    "described": (211, 0.089, -0.023, 0.70, 88),
    "latent_and_nvfp4": (401, 0.175, 0.057, 0.68, 32),
    "recipes": (401, 0.124, 0.060, 0.83, 97),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_blind_scores_follow_from_the_sealed_records(name):
    measured = {row["id"]: value for row, _, value in open_rows.sealed_rows()}
    errors, inside, oom = [], 0, 0
    for point in read_record(BLIND / name / "record.json.gz").points:
        for metric, of in point.metrics.items():
            ratio = of.value / measured[point.key]
            errors.append(ratio - 1 if metric != "iteration_time" else 1 / ratio - 1)
            inside += of.interval.low <= measured[point.key] <= of.interval.high
            oom += point.status == "oom"
    n, mean, bias, share, called = PUBLISHED[name]
    assert (len(errors), oom) == (n, called)
    assert sum(map(abs, errors)) / n == pytest.approx(mean, abs=6e-4)
    assert sum(errors) / n == pytest.approx(bias, abs=6e-4)
    assert inside / n == pytest.approx(share, abs=6e-3)


def test_what_a_sources_own_recipe_says_is_what_is_simulated():
    """FlagPerf's script leaves Megatron's defaults, NeMo 24.07 recomputes nothing, and Llama 3 has its own program."""
    rows = {row["id"]: row for row, *_ in open_rows.sealed_rows() if row["id"].startswith(SOURCES)}
    points = {id: sealed.predict(row) for id, row in rows.items()}
    model = TrainingConfig.from_plain(sealed.configuration(rows["flagperf-001"])).model
    assert (model.bias, model.dropout, model.positions, model.tied_embeddings) == (True, True, "learned", True)
    flagperf, nemo = points["flagperf-001"].parameters, points["nemo_h100_fp8-009"].parameters
    assert "flash_attention_2" in flagperf["software"]
    assert "fused_cross_entropy" not in flagperf["software"]
    assert (nemo["recompute"], "fused_cross_entropy" in nemo["software"]) == ("none", False)
    assert "fused_cross_entropy" in points["nemo_h100_fp8-010"].parameters["software"]
    llama = [point.parameters for id, point in points.items() if id.startswith("llama405b_paper")]
    assert [(each["program"], each["reduce_every"], each["recompute_modules"]) for each in llama] == [
        ("llama-3", 16, "mlp_act")
    ] * 3


def test_every_row_of_the_set_is_scored_once():
    rows = open_rows.scored()
    assert len(rows) == rows.id.nunique() == 689
    assert len(list(open_rows.sealed_rows())) == 467
    assert set(rows[rows.error.isna()].status) <= {"skipped", "invalid"}
    assert rows.error.notna().sum() == 687  # all but DeepSeek-V4
    assert rows[rows.error.isna()].reason.notna().all()


def test_the_command_prints_scores_that_follow_from_the_rows(as_json):
    document = as_json("accuracy", "--open")
    rows = open_rows.scored()
    for score in document["scores"]:
        part = rows if score["by"] == "all" else rows[rows[score["by"]] == score["of"]]
        assert score["mean"] == pytest.approx(part.error.dropna().astype(float).abs().mean())
    assert sum(document["not_described"].values()) == int(rows.error.isna().sum())
    assert next(score for score in document["scores"] if score["by"] == "all")["rows"] == 689

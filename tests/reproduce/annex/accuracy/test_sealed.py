"""Sealed predictions of public runs: every row answered, no measurement read, no record replaced."""

import json
import re
from hashlib import sha256

import pytest

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.pipeline_layout import stage_sizes
from ptdp_core.simulator import load_cluster, simulate
from reproduce.annex.accuracy import sealed
from reproduce.annex.accuracy.ledger import range_of_today
from reproduce.cli import main
from reproduce.experiment import margins
from results import ROOT, opening
from results.records import digest_file, read_record

MODERN = ROOT / "results" / "reference" / "blind" / "modern"
ROW = {
    "id": "here-000",
    "hardware": "DGX-H100",
    "model": {"layers": 24, "hidden": 2048, "heads": 16, "vocab": 51200},
    "layout": {"gpus": 16, "t": 2, "p": 2, "d": 4, "v": None, "b": 1, "B": 64, "s": 2048},
    "precision": "bf16",
    "metric": "tokens_per_s_per_gpu",
    "needs": ["v and b not published"],
}


@pytest.fixture
def seal(tmp_path, capsys):
    """Seals rows; returns exit code, what stderr says, and the record if there is one."""

    def sealed_rows(*rows, folder="sealed"):
        (tmp_path / "points.json").write_text(json.dumps(rows))
        code = main(["predict", str(tmp_path / "points.json"), "--out", str(tmp_path / folder)])
        path = tmp_path / folder / "record.json"
        return code, capsys.readouterr().err, read_record(path) if path.exists() else None

    return sealed_rows


def test_a_row_is_predicted_as_its_configuration(seal, tmp_path):
    code, _, record = seal(ROW)
    (point,) = record.points
    config = TrainingConfig.from_plain({key: point.parameters[key] for key in sealed.configuration(ROW)})
    estimate = simulate(config, load_cluster("h100"))
    tokens = point.metrics["tokens_per_s_per_gpu"]
    assert code == 0
    assert tokens.value == pytest.approx(64 * 2048 / 16 / estimate.iteration_time)
    unnamed = margins.of_class("h100", {}, None)
    ends = tokens.value / unnamed.high, tokens.value / unnamed.low
    assert (tokens.interval.low, tokens.interval.high) == pytest.approx(ends)
    assert config.parallel.sequence_parallel
    assert config.parallel.sharded_optimizer
    assert digest_file(tmp_path / "points.json") in record.notes[1]


def test_on_a_cluster_without_open_rows_the_interval_is_where_all_of_todays_runs_lie(seal):
    _, _, record = seal(ROW | {"hardware": "HGX H200", "metric": "iteration_s"})
    seconds = record.points[0].metrics["iteration_time"]
    low, high = range_of_today()
    assert margins.of_class("h200", {}, None) is None
    assert (seconds.interval.low, seconds.interval.high) == pytest.approx((seconds.value * low, seconds.value * high))
    assert low < 1 < high


def test_what_does_not_fit_is_sealed_with_what_to_try(seal):
    alone = {"layout": ROW["layout"] | {"gpus": 1, "t": 1, "p": 1, "d": 1, "B": 16}, "model": {"name": "llama-3-8b"}}
    _, _, record = seal(ROW | alone)
    (point,) = record.points
    assert point.status == "oom"
    assert re.search(r"needs [\d.]+ GB .*; try offload=optimizer.*: [\d.]+ GB, \+[\d.]+% time", point.reason)


def test_choices_stand_in_the_record(seal):
    _, _, record = seal(ROW | {"choices": {"v": 6, "b": 2}, "why": "One layer a chunk."})
    assert (record.points[0].parameters["v"], record.points[0].parameters["b"]) == (6, 2)
    assert "here: One layer a chunk." in record.notes


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"precision": "NVFP4"}, "whose file has no fp4_peak_flops"),
        ({"layout": ROW["layout"] | {"method": "vocab-1"}}, "t=2, c=1, mtp_layers=0 with schedule='1f1b+vocab-1'"),
        ({"layout": ROW["layout"] | {"ep": 2}}, "e=2, etp=0, capacity_factor=0.0 of a model without experts"),
        ({"layout": ROW["layout"] | {"cp": 2}}, "p*t*c*d=32 is not gpus=16"),
        ({"layout": ROW["layout"] | {"d": 3}}, "needs"),
        ({"model": {"name": "Unheard-Of 9B"}}, "unknown model"),
    ],
)
def test_a_row_without_a_prediction_says_why(seal, changes, reason):
    code, _, record = seal(ROW | changes, ROW | {"id": "here-001"})
    assert code == 0
    assert reason in record.points[0].reason
    assert not record.points[0].metrics
    assert record.points[1].metrics


def test_ranks_that_share_a_sequence_pass_keys_and_values_around_a_ring_unless_a_source_says_otherwise(seal):
    shared = ROW | {"layout": ROW["layout"] | {"cp": 2, "d": None}, "needs": ["CP"]}
    gathers = shared | {"id": "here-001", "choices": {"context_exchange": "all_gather"}}
    _, _, record = seal(shared, gathers)
    ring, gathered = (point.parameters for point in record.points)
    assert [(point["c"], point["d"]) for point in (ring, gathered)] == [(2, 2)] * 2
    assert ring["context_exchange"] == "ring"
    assert "context_exchange" not in gathered
    assert all(point.metrics for point in record.points)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"measured": 2.83}, "holds a measurement, 'measured'"),
        ({"layout": ROW["layout"] | {"iteration_s": 2.83}}, "'iteration_s' is unknown"),
        ({"precision": "FP9"}, "precision 'FP9' is unknown"),
        ({"hardware": "DGX-H1000"}, "did you mean 'DGX-H100'?"),
        ({"needs": ["Telepathy"]}, "technique 'Telepathy' is unknown"),
        ({"metric": "mfu"}, "metric 'mfu' is unknown"),
        ({"model": 3}, "model=3 is not an object"),
        ({"layout": ROW["layout"] | {"t": "two"}}, "t='two' is no size"),
        ({"id": "here-001"}, "id 'here-001' stands twice"),
        ({"choices": {"speed": 2}}, "choice 'speed' is unknown"),
    ],
)
def test_what_will_not_do_is_refused_in_one_line_and_nothing_is_written(seal, tmp_path, changes, said):
    code, error, record = seal(ROW | {"id": "here-001"}, ROW | changes)
    assert code == 2
    assert said in error
    assert error.count("\n") == 1
    assert record is None
    assert not (tmp_path / "sealed").exists()


def test_what_is_sealed_is_said_with_its_digest_and_what_is_not_with_its_reason(tmp_path, said):
    rows = [ROW, *({**ROW, "id": f"here-00{n}", "model": {"name": "Unheard-Of 9B"}} for n in (1, 2))]
    (tmp_path / "points.json").write_text(json.dumps(rows))
    printed = said("predict", tmp_path / "points.json", "--out", tmp_path / "sealed")
    assert "1 of 3 rows predicted" in printed
    assert re.search(r"here-000: [\d.]+ s, spent on computation \d+%, .*; bound by the host \d+%, matrix", printed)
    assert "    2  unknown model 'unheard-of-9b'" in printed
    assert digest_file(tmp_path / "sealed" / "record.json") in printed
    shorter = said("predict", tmp_path / "points.json", "--out", tmp_path / "again", "-q")
    assert "1 of 3 rows predicted" in shorter
    assert "bound by" not in shorter


def test_a_sealed_record_stays_as_it_is(seal, tmp_path):
    seal(ROW)
    before = (tmp_path / "sealed" / "record.json").read_bytes()
    code, error, _ = seal(ROW | {"precision": "fp16"})
    assert (code, error.count("\n")) == (2, 1)
    assert "is sealed" in error
    assert (tmp_path / "sealed" / "record.json").read_bytes() == before


def test_every_public_run_has_a_sealed_answer():
    rows = json.loads((MODERN / "points.json").read_text())
    sealed.check(rows, "points.json")
    digests = [digest_file(points) for points in MODERN.rglob("points.json")]
    for path in MODERN.glob("*/record.json.gz"):
        record = read_record(path)
        assert [point.key for point in record.points] == [row["id"] for row in rows]
        assert all(point.metrics or point.reason for point in record.points)
        assert any(digest in record.notes[1] for digest in digests)
        assert record.provenance.commit
        assert not record.provenance.dirty


def test_the_page_names_every_sealed_record_by_its_digest():
    page = (ROOT / "docs" / "blind.md").read_text(encoding="utf-8")
    blind = ROOT / "results" / "reference" / "blind"
    for path in blind.glob("*/*/record.json.gz"):
        name = path.parent.relative_to(blind).as_posix()
        assert f"| `{name}` | `{sha256(opening.read_packed(path)).hexdigest()[:16]}` |" in page, name


@pytest.mark.parametrize(
    ("layout", "fields"),
    [
        ({"fsdp": 4, "d": 16}, {"data_parallel": "zero3", "zero3_shards": 4}),  # copies of the states beside each other
        ({"fsdp": 16, "d": 16}, {"data_parallel": "zero3"}),
        ({"fsdp": 8, "d": 8, "t": 2}, {"data_parallel": "zero3", "t": 2, "sequence_parallel": True}),
        ({"recompute": "per operator"}, {"recompute": "selective", "recompute_modules": "operators"}),
        ({"schedule": "v-half", "p": 2, "v": 2, "d": 8}, {"schedule": "v-half"}),
    ],
)
def test_what_a_layout_says_becomes_fields_of_a_configuration(seal, layout, fields):
    whole = {"gpus": 16, "t": 1, "p": 1, "d": 16, "v": 1, "b": 1, "B": 64, "s": 2048} | layout
    _, error, record = seal(ROW | {"layout": whole})
    assert not error
    (point,) = record.points
    assert point.metrics, point.reason
    assert {name: point.parameters.get(name) for name in fields} == fields
    if "zero3_shards" not in fields:
        assert "zero3_shards" not in point.parameters


@pytest.mark.parametrize("method", ["vocab-1", "vocab-2", "interlaced"])
def test_pipeline_ranks_that_share_the_vocabulary_are_a_schedule_s(seal, method):
    layout = {"gpus": 8, "t": 1, "p": 4, "v": 2, "d": 2, "b": 1, "B": 64, "s": 2048, "schedule": "v-half"}
    _, _, record = seal(ROW | {"layout": layout | {"method": method}})
    assert record.points[0].parameters["schedule"] == f"v-half+{method}"
    assert record.points[0].metrics


@pytest.mark.parametrize(("vocab", "last"), [(8192, 4), (65536, 3), (262144, 0)])
def test_a_redistributed_model_s_last_stage_is_as_long_as_the_others_by_its_work(vocab, last):
    """The output of h=3072 is V/12h layers' worth or a little less, and a layer cannot be cut."""
    config = TrainingConfig(ModelConfig(32, 3072, 24, vocab=vocab, tied_embeddings=False), ParallelConfig(p=8, B=128))
    sizes = stage_sizes(sealed.redistributed(config))
    assert (sum(sizes), sizes[-1]) == (32, last)
    assert max(sizes[:-1]) - min(sizes[:-1]) <= 1
    assert list(sizes[:-1]) == sorted(sizes[:-1])


def test_a_row_is_answered_by_what_its_source_publishes(seal):
    row = {key: value for key, value in ROW.items() if key != "needs"}
    published = "MFU and peak memory of the fullest GPU"
    _, error, record = seal(row | {"metric": published, "hardware": "A100 80 GB, nodes of 8, RoCE, up to 4 nodes"})
    assert not error
    mfu, memory = (record.points[0].metrics[name] for name in ("model_flops_utilization", "peak_memory"))
    assert mfu.interval.low < mfu.value < mfu.interval.high
    assert (memory.unit, memory.interval) == ("B", None)


def test_a_technique_that_is_a_switch_is_one_of_its_program_s(seal):
    wide = {"layers": 24, "hidden": 8192, "heads": 64, "vocab": 51200}  # in which the host is not what limits
    whole = ROW | {"model": wide, "layout": ROW["layout"] | {"sequence_parallel": True}}
    _, error, record = seal(whole, whole | {"id": "here-001", "needs": ["async TP"]})
    assert not error
    plain, cut = record.points
    assert cut.parameters["software"].endswith("overlapped_tensor_parallel")
    assert cut.metrics["tokens_per_s_per_gpu"].value > plain.metrics["tokens_per_s_per_gpu"].value

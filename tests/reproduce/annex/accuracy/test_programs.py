"""An interval is printed for programs whose runs were scored; of others a sentence says how far off they were."""

import json

import pytest

from ptdp_core.config import TrainingConfig
from ptdp_core.simulator import load_cluster, simulate
from reproduce.annex.accuracy import intervals
from reproduce.experiment import margins
from reproduce.planning.what_if import evaluate

SMOLLM_3 = {"layers": 36, "hidden": 2048, "heads": 16, "kv_heads": 4, "seq": 4096, "vocab": 128256}
SMOLLM_3 |= {"ffn_hidden": 11008, "activation": "swiglu", "norm": "rmsnorm", "positions": "rotary", "bias": False}
SMOLLM_3 |= {"tied_embeddings": True, "t": 2, "d": 192, "B": 576, "b": 3, "recompute": "none", "attention": "sdpa"}
SMOLLM_3 |= {"sequence_parallel": True, "sharded_optimizer": True}
PUBLISHED = 14_000  # tokens per second and GPU of 384 H100s, with a program that was not scored


def test_the_committed_programs_follow_from_the_ledger() -> None:
    committed = json.loads(margins.FILE.read_text())
    recomputed = json.loads(json.dumps(intervals.programs()))
    assert committed["programs"].keys() == recomputed.keys() == {"selene", *committed["others"]}
    for cluster, found in recomputed.items():
        for end in ("low", "high"):
            assert committed["programs"][cluster].pop(end) == pytest.approx(found.pop(end))
        assert committed["programs"][cluster] == found


def test_a_fresh_program_s_run_is_outside_the_interval_and_inside_the_spread_that_is_said() -> None:
    answer = evaluate(SMOLLM_3, 1, "h100")
    longer = answer["tokens_per_s_per_gpu"] / PUBLISHED  # its real time over the simulated one
    known = margins.read("h100")
    assert known is not None
    assert answer["intervals"]["tokens_per_s_per_gpu"]["low"] > PUBLISHED
    assert known.programs["low"] < longer < known.programs["high"]
    (said,) = margins.lines(known)
    assert said.startswith(
        "intervals hold for runs of NVIDIA's NeMo, llm-foundry with FSDP and Zero Bubble's Megatron-LM"
    )
    most = f"{known.programs['high'] - 1:.0%}"
    assert f"A run of another program has none either: 198 iterations of theirs took 7% less to {most} more" in said


@pytest.mark.parametrize(
    ("software", "scored"),
    [
        (None, True),
        (["overlapped_all_reduce", "fused_accumulation", "fused_cross_entropy"], True),  # NVIDIA's
        (["fp32_gradients", "flash_attention_2", "blocking_launches"], False),
        ([], False),
    ],
)
def test_an_interval_is_printed_for_a_program_of_which_runs_were_scored(software, scored) -> None:
    point = SMOLLM_3 | ({} if software is None else {"software": software})
    assert bool(evaluate(point, 1, "h100")["intervals"]) is scored


def test_the_spread_is_that_of_runs_simulated_as_the_cluster_s_program() -> None:
    study = next(study for study in intervals.studies() if study.id == "dgxc_h100")
    ratios = intervals._as_the_clusters_program(study)
    point = study.points.iloc[0]
    assert isinstance(point.config, TrainingConfig)
    assert ratios[0] == point.iteration_time / simulate(point.config, load_cluster("h100")).iteration_time

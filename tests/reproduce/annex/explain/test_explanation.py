"""Explanations: injected causes are found, Shapley shares add up, and public threads have their cause first."""

import json
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest

from ptdp_core.config import TrainingConfig
from ptdp_core.simulator import load_cluster, simulate
from reproduce.annex.accuracy.published_rows import find_row
from reproduce.annex.explain.explanation import NETWORK, RATES, SOCKETS, explain, split_gap, utilization
from reproduce.annex.explain.throughput_lines import Measurement, read_lines
from reproduce.planning.models import with_model_fields
from results.records.errors import UsageError

THREADS = json.loads(Path(__file__).with_name("public_threads.json").read_text(encoding="utf-8"))
POINT = {"layers": 24, "hidden": 4096, "heads": 32, "p": 2, "t": 8, "d": 2, "B": 32}
MEGATRON = (
    " [2024-03-30 20:02:40] iteration 10/ 500 | elapsed time per iteration (ms): 9496.4 | "
    "throughput per GPU (TFLOP/s/GPU): 137.5 |"
)


def config_of(point):
    return TrainingConfig.from_plain(with_model_fields(point))


@pytest.mark.parametrize("thread", THREADS, ids=lambda thread: thread["thread"])
def test_the_cause_of_a_public_thread_is_first(thread):
    config, cluster = config_of(thread["point"]), load_cluster(thread["cluster"])
    if "against" in thread:
        assert thread["cause"] in split_gap(config, config_of(thread["against"]), cluster).shares[0].change
    else:
        explanation = explain(config, cluster, read_lines(thread["log"], "log"))
        assert explanation.causes[0].name == thread["cause"]


@pytest.mark.parametrize(("name", "numbers"), [("GEMM rate", ("peak_flops",)), ("network", NETWORK)])
def test_a_rate_that_is_lower_is_found_with_its_factor(name, numbers):
    config, cluster = config_of(POINT), load_cluster("selene")
    factor = {"network": 4, "GEMM rate": 1.5}[name]
    slow = replace(cluster, **{number: getattr(cluster, number) / factor for number in numbers})
    explanation = explain(config, cluster, Measurement(seconds=simulate(config, slow).iteration_time))
    cause = next(cause for cause in explanation.causes if cause.name == name)
    assert cause.change == f"{name} at 1/{factor}"
    assert cause.explained == pytest.approx(1, abs=1e-3)


def test_a_field_that_is_another_explains_all_of_its_gap():
    cluster = load_cluster("selene")
    measured = simulate(config_of(POINT | {"recompute": "none"}), cluster).iteration_time
    explanation = explain(config_of(POINT), cluster, Measurement(seconds=measured))
    cause = next(cause for cause in explanation.causes if cause.change == "recompute=none")
    assert (cause.seconds, cause.explained) == (measured, 1)


def test_a_switch_is_written_as_simulate_takes_it(file, said):
    slower = simulate(config_of(POINT | {"fused": False}), load_cluster("selene")).iteration_time
    assert ": fused=false ->" in said("explain", file, "--seconds", f"{slower:.3f}")


def test_as_fast_as_simulated_is_inside_the_interval():
    config, cluster = config_of(POINT), load_cluster("selene")
    simulated = simulate(config, cluster).iteration_time
    for factor, inside in ((1.0, True), (1.06, True), (0.95, True), (1.08, False), (0.9, False)):
        explanation = explain(config, cluster, Measurement(seconds=factor * simulated))
        assert explanation.inside is inside
        assert (explanation.low <= factor * simulated <= explanation.high) is inside
        assert bool(explanation.causes) is not inside  # there is nothing to explain


EXPERTS = {"experts": 16, "experts_per_token": 2, "d": 8, "t": 1, "p": 2, "e": 8, "attention": "sdpa"}


@pytest.mark.parametrize(
    ("name", "point", "slower"),
    [
        ("expert imbalance", {"expert_imbalance": 2.5}, {}),
        ("dispatch", {}, {"expert_launch_time": 200e-6}),
        ("power cap", {}, {"peak_flops": 989e12 / 1.4}),
        ("data loading", {}, {"iteration_host_time": 0.4}),
    ],
)
def test_causes_of_experts_data_and_power_are_found_with_their_size(name, point, slower):
    cluster = load_cluster("h100")
    config, changed = config_of(POINT | EXPERTS), config_of(POINT | EXPERTS | point)
    measured = simulate(changed, replace(cluster, **slower)).iteration_time
    explanation = explain(config, cluster, Measurement(seconds=measured))
    (cause,) = (cause for cause in explanation.causes if cause.name == name)
    assert cause.explained == pytest.approx(1, abs=1e-2)
    words = {"expert imbalance": "with 2.5 times", "dispatch": "200 us for", "power cap": "clocks at 71%"}
    assert words.get(name, f"{measured - explanation.simulated:.3g} s more") in cause.change
    scores = [each.score for each in explanation.causes]
    assert scores == sorted(scores)


def test_no_rate_is_farther_off_than_is_plausible():
    config, cluster = config_of(POINT), load_cluster("selene")
    explanation = explain(config, cluster, Measurement(seconds=20 * simulate(config, cluster).iteration_time))
    changes = {cause.name: cause.change for cause in explanation.causes if cause.name in RATES}
    for name, change in changes.items():
        factor = 1 + float(change.split()[-2].rstrip("%")) / 100 if name == "straggler" else 0
        factor = 100 / float(change.split()[-1].rstrip("%")) if name == "power cap" else factor
        assert (factor or float(change.rpartition("/")[2])) <= max(
            RATES[name].most, SOCKETS * (name == "network")
        ) * 1.01


def test_supervised_fine_tuning_that_is_too_fast_is_packed_and_one_that_is_too_slow_has_no_network_in_front():
    """NVIDIA-NeMo/RL#966: 35 s for 512 samples of up to 32,768 tokens, and 13 s of 4,096."""
    point = {"model": "qwen3-30b-a3b", "e": 8, "B": 512, "attention": "sdpa", "sharded_optimizer": True}
    long = point | {"seq": 32768, "t": 2, "d": 16, "etp": 1, "sequence_parallel": True}
    fast = explain(config_of(long), load_cluster("h200"), Measurement(seconds=35))
    assert [cause.name for cause in fast.causes] == ["accounting", "packing"]
    assert "of the GPUs' peak: B, seq" in fast.causes[0].change
    assert fast.causes[1].explained > 0.9
    slow = explain(config_of(point | {"seq": 4096, "d": 32, "b": 8}), load_cluster("h200"), Measurement(seconds=13))
    assert not any(cause.name == "network" for cause in slow.causes[:3])
    assert {"expert imbalance", "data loading", "dispatch"} <= {cause.name for cause in slow.causes}


def test_shapley_shares_multiply_to_the_ratio_of_the_utilizations_and_do_not_depend_on_the_side():
    cluster, other = load_cluster("selene"), POINT | {"p": 4, "d": 1, "recompute": "none", "fused": False}
    slow, fast = config_of(POINT), config_of(other)
    there, back = split_gap(slow, fast, cluster), split_gap(fast, slow, cluster)
    ratio = simulate(slow, cluster).model_flops_utilization / simulate(fast, cluster).model_flops_utilization
    assert len(there.shares) == 3
    assert there.simulated == pytest.approx(ratio)
    assert prod(share.factor for share in there.shares) == pytest.approx(ratio)
    assert [share.factor for share in there.shares] == pytest.approx([1 / s.factor for s in reversed(back.shares)])


def test_another_cluster_is_a_difference_and_what_is_left_is_said():
    here, there, config = load_cluster("selene"), load_cluster("h100"), config_of(POINT)
    gap = split_gap(config, config, here, there, measured=0.5)
    mfu = [simulate(config, cluster).model_flops_utilization for cluster in (here, there)]
    assert [share.change for share in gap.shares] == [
        "cluster h100 (overlapped_all_reduce, fused_accumulation, fp32_gradients, fused_cross_entropy, fsdp) to selene"
    ]
    assert gap.shares[0].factor == gap.simulated == pytest.approx(mfu[0] / mfu[1])
    assert gap.unexplained == pytest.approx(0.5 / gap.simulated)


def test_a_run_as_slow_as_its_differences_leaves_nothing_unexplained(file, tmp_path, said, as_json):
    other, cluster = POINT | {"p": 4, "d": 1, "recompute": "none"}, load_cluster("selene")
    (tmp_path / "other.json").write_text(json.dumps([other]))
    seconds = [str(simulate(config_of(point), cluster).iteration_time) for point in (POINT, other)]
    command = ["explain", file, "--seconds", seconds[0], "--against", str(tmp_path / "other.json")]
    assert "x1.000 is not explained, within the simulator's" in said(*command, "--seconds2", seconds[1])
    against = as_json(*command, "--seconds2", "1")["against"]
    assert against["unexplained"] == pytest.approx(against["measured"] / against["simulated"])


@pytest.mark.parametrize("row", ["table_weak_scaling:model_145_6b", "megatron_readme:1"])
def test_a_published_row_has_its_own_time(row, file, as_json):
    published = find_row(row)
    against = as_json("explain", file, "--seconds", "9", "--against", row)["against"]
    mfu = utilization(config_of(POINT), load_cluster("selene"), 9)
    theirs = utilization(published.config, published.cluster, published.seconds)
    assert against["measured"] == pytest.approx(mfu / theirs)


LATENT = {"kv_latent": 512, "rotary_dim": 64, "head_dim": 128, "bias": False, "positions": "rotary"}
MIXTURE = {"experts": 8, "experts_per_token": 2, "e": 2}


@pytest.mark.parametrize(
    "other",
    [
        {"p": 4, "d": 1, "pipeline_layout": "Et*6|t*6|t*6|t*6L"},
        {"p": 1, "d": 4, "data_parallel": "zero3", "t": 1},
        LATENT,
        MIXTURE | {"mtp_layers": 1, "qk_norm": True, "capacity_factor": 1.0},
        {"v": 2, "p": 2, "sharded_optimizer": True, "data_parallel": "zero2"},
        {"sequence_parallel": True, **MIXTURE, "etp": 1},
        {"fp8_recipe": "delayed", "cluster": "h100"},
        {"c": 2, "d": 1, "context_exchange": "ring", "attention": "sdpa", "sequence_parallel": True},
    ],
    ids=lambda other: ",".join(other),
)
def test_any_two_configurations_have_a_gap_whose_shares_make_it_up(other):
    def of(point):
        return config_of({name: value for name, value in point.items() if name != "cluster"})

    here, there = load_cluster("selene"), load_cluster(other.get("cluster", "selene"))
    slow, fast = of(POINT), of(POINT | other)
    gap = split_gap(slow, fast, here, there)
    ratio = simulate(slow, here).model_flops_utilization / simulate(fast, there).model_flops_utilization
    assert gap.simulated == pytest.approx(ratio)
    assert prod(share.factor for share in gap.shares) == pytest.approx(ratio)


def test_what_is_possible_only_together_is_one_difference_and_nothing_more_is():
    other = POINT | {"p": 4, "d": 1, "pipeline_layout": "Et*6|t*6|t*6|t*6L", "recompute": "none"}
    gap = split_gap(config_of(POINT), config_of(other), load_cluster("selene"))
    assert sorted(share.change for share in gap.shares) == [
        "p 4 to 2, d 1 to 2, pipeline_layout Et*6|t*6|t*6|t*6L to ",
        "recompute none to full",
    ]


def test_a_configuration_that_the_cluster_cannot_run_is_one_line(file, tmp_path, refused):
    (tmp_path / "fp8.json").write_text(json.dumps([POINT | {"fp8_recipe": "delayed"}]))
    fp8 = str(tmp_path / "fp8.json")
    for arguments in ([fp8], [file, "--against", fp8]):
        assert "fp8.json: fp8_recipe on selene" in refused("explain", *arguments, "--seconds", "9")


@pytest.mark.parametrize(
    ("text", "measurement"),
    [
        (MEGATRON, Measurement(seconds=9.4964, flops_per_gpu=137.5e12)),
        ("step: 10 loss: 7.6 memory: 40.13GiB(50.70%)  tps: 2,793  tflops: 161.76  mfu: 51.85%",
         Measurement(tokens_per_gpu=2793, flops_per_gpu=161.76e12, utilization=0.5185)),
        ("step: 10  wps: 1,786  mfu: 10.46%", Measurement(tokens_per_gpu=1786, utilization=0.1046)),
        ("Training epoch 0, iteration 9/99 | train_step_timing in s: 4.183 | TFLOPS_per_GPU: 402.5",
         Measurement(seconds=4.183, flops_per_gpu=402.5e12)),
        ("Train throughput/device/tokens_per_sec: 9600.5\nTrain throughput/device/mfu: 0.4644",
         Measurement(tokens_per_gpu=9600.5, utilization=0.4644)),
        ('{"run": "x", "event": "step", "step_time_s": 0.25, "model_flops_per_s": 2e9}',
         Measurement(seconds=0.25, flops_per_gpu=2e9)),
        ("iteration: 9 | elapsed_time_per_iteration_ms: 11.5K | tokens_per_sec: 22.8K | tokens_per_sec_per_gpu: 11.4K"
         " | model_tflops_per_gpu: 38.3 | hardware_tflops_per_gpu: 39.1",
         Measurement(seconds=11.5, tokens_per_gpu=11400, flops_per_gpu=38.3e12)),
        ("iter 1631: loss 4.0863, time 561.94ms, mfu 31.20%", Measurement(seconds=0.56194, utilization=0.312)),
        ("wps: 10\nwps: 200\nwps: 204", Measurement(tokens_per_gpu=202)),
    ],
)  # fmt: skip
def test_throughput_lines_of_training_programs(text, measurement):
    read = read_lines(text, "log")
    assert vars(read) == pytest.approx(vars(measurement))


@pytest.mark.parametrize(("text", "words"), [("no numbers", "no throughput in any line"), ("tps: 0", "is 0; needs")])
def test_a_log_without_a_throughput_is_an_error(text, words):
    with pytest.raises(UsageError, match=words):
        read_lines(text, "log")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "point.json"
    path.write_text(json.dumps([POINT]))
    return str(path)


def test_the_command_says_interval_causes_and_what_would_decide(file, tmp_path, said, as_json):
    other = tmp_path / "other.json"
    other.write_text(json.dumps([POINT | {"recompute": "none"}]))
    printed = said("explain", file, "--seconds", "9", "--against", other)
    for words in ("measured 9.000 s", "interval", "single causes", "would decide", "recompute none to full"):
        assert words in printed
    assert as_json("explain", file, "--seconds", "9")["differences"] is None
    words = [f"{key}={value}" for key, value in POINT.items()]
    assert as_json("explain", *words, "--seconds", "9") == as_json("explain", file, "--seconds", "9")

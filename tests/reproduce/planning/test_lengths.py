"""Samples of mixed lengths: packed without loss, with their own attention, and as slow as the slowest replica."""

from random import Random

import pytest

from ptdp_core.formulas import attention_core_flops
from reproduce.planning.lengths import packed, read
from reproduce.planning.what_if import described, evaluate

POINT = {"model": "llama-3-8b", "seq": 8192, "d": 8, "B": 64, "recompute": "none", "attention": "sdpa"}


def test_packing_loses_nothing_and_fills_no_sequence_beyond_its_end():
    lengths = [Random(7).randint(1, 4000) for _ in range(500)]
    rows = packed(lengths, 4096)
    assert sum(row.tokens for row in rows) == sum(lengths)
    assert sum(row.pairs for row in rows) == sum(length**2 for length in lengths)
    assert max(row.tokens for row in rows) <= 4096
    assert len(rows) <= -(-sum(lengths) // 4096) * 1.05


def test_samples_as_long_as_sequences_change_nothing():
    plain, whole = evaluate(POINT, 1, "h100"), evaluate(POINT | {"lengths": [[8192, 10]]}, 1, "h100")
    assert whole["iteration_time"] == plain["iteration_time"]
    assert "packed into B=64 sequences, 100% of them filled (100% padded each alone)" in whole["reason"]


@pytest.mark.parametrize("length", [4096, 1024, 64])
def test_attention_is_that_of_the_samples(length):
    (config, *_), (plain, *_) = (described(POINT | more, "h100") for more in ({"lengths": [[length, 1024]]}, {}))
    assert config.parallel.B in (8, 64 * length // 8192)
    shorter = attention_core_flops(config.model, 1), attention_core_flops(plain.model, 1) * length / 8192
    assert shorter[0] == pytest.approx(shorter[1], rel=2 / length)


def test_the_slowest_of_more_replicas_has_more_attention():
    mixed = [[8192, 10], [512, 800]]
    found = [described(POINT | {"d": d, "B": 64 * d, "lengths": mixed}, "h100")[0].model.window for d in (1, 8, 64)]
    assert found == sorted(set(found))
    alike = [described(POINT | {"d": d, "B": 64 * d, "lengths": [512]}, "h100")[0].model.window for d in (1, 64)]
    assert alike[0] == alike[1]


def test_supervised_fine_tuning_is_priced_by_the_lengths_of_its_samples(tmp_path, simulated_points):
    """NVIDIA-NeMo/RL#966: 512 samples packed to 32,768 tokens took 35 s; whole sequences are simulated as 102 s."""
    point = {"model": "qwen3-30b-a3b", "seq": 32768, "t": 2, "d": 16, "e": 8, "etp": 1, "B": 512, "attention": "sdpa"}
    point |= {"sequence_parallel": True, "sharded_optimizer": True}
    (tmp_path / "lengths.txt").write_text("# tokens, samples\n1000 300\n4000, 100\n\n30000 5\n12000\n")
    whole = evaluate(point, 1, "h200")["iteration_time"]
    (mixed,) = simulated_points([point], "--cluster", "h200", "--lengths", tmp_path / "lengths.txt")
    assert whole == pytest.approx(102, rel=0.1)
    assert 0.02 * whole < mixed["iteration_time"] < 0.1 * whole


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([40000], "a sample of 40000 tokens with seq=8192; needs a sequence for it; try seq=40000"),
        (["x"], "lengths, entry 1: 'x'; needs a length, or a length and how many samples have it"),
        ([[1, 2, 3]], "entry 1: '1 2 3'"),
        ([5, 0], "entry 2: '0'"),
        ([[5, 10**9]], "at most 1,000,000 in all"),
        ([], "lengths hold no sample"),
        (5, "lengths=5 are none; needs a file's path, or a list"),
        ("/nowhere/lengths", "cannot read lengths /nowhere/lengths"),
    ],
)
def test_lengths_that_are_none_are_one_line(given, message):
    answer = evaluate(POINT | {"lengths": given}, 1, "h100")
    assert answer["status"] == "invalid"
    assert message in answer["reason"]
    assert "\n" not in answer["reason"]


def test_a_list_may_say_how_many_have_a_length():
    assert read([3, [5, 2]]) == [3, 5, 5]

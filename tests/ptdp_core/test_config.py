import re
from dataclasses import MISSING, FrozenInstanceError, fields
from pathlib import Path

import pytest

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig, padded_vocab
from ptdp_core.engine.settings import EngineSettings, OptimizerSettings, RunSettings
from ptdp_core.errors import ConfigurationError
from ptdp_core.fields import descriptions, smallest
from ptdp_core.schedules import default_schedule, names

GPT3 = {"layers": 96, "hidden": 12288, "heads": 96, "seq": 2048, "vocab": 51200}


def configured(**values: object) -> TrainingConfig:
    return TrainingConfig.from_plain(GPT3 | {"p": 12, "t": 8, "B": 12} | values)


def test_letters_of_section_3_1() -> None:
    parallel = ParallelConfig(p=12, t=8, d=4, b=2, B=96)
    assert (parallel.n, parallel.m) == (384, 12)


def test_schedule_follows_v_unless_it_is_given() -> None:
    assert ParallelConfig(p=4, B=8).schedule == "1f1b"
    assert ParallelConfig(p=4, v=2, B=8).schedule == "interleaved"
    assert ParallelConfig(p=4, B=8, schedule="gpipe").schedule == "gpipe"


def test_fewer_microbatches_than_stages_are_legal_for_1f1b() -> None:
    assert ParallelConfig(p=16, t=8, B=1).m == 1


def test_plain_values_round_trip_and_ignore_other_keys() -> None:
    config = configured(v=4, label="not a field")
    assert TrainingConfig.from_plain(config.to_plain()) == config
    assert config.layers_per_chunk == 2


def test_records_of_the_papers_models_do_not_name_what_came_later() -> None:
    assert not {"kv_heads", "ffn_hidden", "activation", "norm", "bias", "attention"} & configured().to_plain().keys()
    later = configured(kv_heads=8, bias=False, attention="sdpa")
    assert {"kv_heads": 8, "bias": False, "attention": "sdpa"}.items() <= later.to_plain().items()
    assert TrainingConfig.from_plain(later.to_plain()) == later


def test_words_of_older_records_are_understood() -> None:
    older = {"scheme": "zero3", "data_parallel": "local", "p": 1, "t": 1, "d": 12}
    assert configured(**older).parallel.data_parallel == "zero3"
    assert configured(scheme="ptdp", data_parallel="torch").parallel.data_parallel == "torch"


@pytest.mark.parametrize("part", [ModelConfig, ParallelConfig, EngineSettings, OptimizerSettings, RunSettings])
def test_every_field_has_a_sentence_about_itself(part: type) -> None:
    for name, sentence in descriptions(part).items():
        assert re.fullmatch(r"[A-Z'].{7,220}\.", sentence), f"{name}: {sentence}"


@pytest.mark.parametrize("part", [ModelConfig, ParallelConfig, EngineSettings, OptimizerSettings, RunSettings])
def test_a_field_may_be_its_default_and_what_it_says_and_nothing_else(part: type) -> None:
    required = {item.name: 1 for item in fields(part) if item.default is MISSING}
    part(**required)
    for item in fields(part):
        if choices := item.metadata["choices"]:
            assert item.default in choices
            wrong: list[object] = ["x".join(choices)]
        elif (least := smallest(item)) is not None:
            wrong = [least - 1, True, "1"]
        else:
            wrong = [2, None] if item.type is bool else [None]
        for value in wrong:
            with pytest.raises(
                ConfigurationError, match=rf"^{item.name}={re.escape(repr(value))} is .*; needs .*; try "
            ):
                part(**required | {item.name: value})


def test_the_sentence_of_a_schedule_does_not_grow_with_the_schedules_there_are() -> None:
    words = set(re.findall(r"[\w-]+", descriptions(ParallelConfig)["schedule"]))
    assert words & set(names()) == {default_schedule(1), default_schedule(2)}


def test_only_what_cannot_be_configured_is_an_error_of_the_configuration(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text("x = 1")
    for values in ({"layers": 0}, {"t": 5}, {"schedule": "1f1"}, {"v": 4, "B": 20}, {"schedule": str(own)}):
        with pytest.raises(ConfigurationError):
            configured(**values)


def test_configurations_do_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        configured().model.layers = 1  # type: ignore[misc]


@pytest.mark.parametrize(("vocab", "t", "padded"), [(51200, 8, 51200), (51200, 32, 53248), (50257, 1, 50304)])
def test_vocabulary_is_padded_to_a_multiple_of_128_t(vocab: int, t: int, padded: int) -> None:
    assert padded_vocab(vocab, t) == padded


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"layers": 0}, "layers=0 is not a positive whole number; needs layers >= 1; try layers=1"),
        ({"b": 1.0}, "b=1.0 is not a positive whole number; needs b >= 1; try b=1"),
        ({"p": True}, "p=True is not a positive whole number"),
        ({"layers": 10**30}, f"layers={10**30} is larger than any run's; needs at most {2**53}; try a smaller layers"),
        ({"hidden": 2**53 - 111, "heads": 2**53 - 112}, "needs equal heads; try heads=1"),  # a prime number
        ({"heads": 100}, "hidden=12288 is not divisible by heads=100; needs equal heads; try heads=96"),
        ({"schedule": "1f1"}, "schedule='1f1' is unknown; needs one of gpipe, 1f1b, interleaved"),
        (
            {"recompute": "some"},
            "recompute='some' is unknown; needs one of full, selective, none, auto; try recompute='full'",
        ),
        ({"reduce_every": 2}, "reduce_every=2 with data_parallel='local', which reduces once; needs 'zero2'; try"),
        ({"data_parallel": "ddp"}, "data_parallel='ddp' is unknown; needs one of local, torch, zero2, zero3"),
        ({"scatter_gather": "yes"}, "scatter_gather='yes' is not a truth value; needs true or false"),
        ({"fused": 1}, "fused=1 is not a truth value; needs true or false; try fused=true"),
        ({"sequence_parallel": 1}, "sequence_parallel=1 is not a truth value; needs true or false"),
        (
            {"sequence_parallel": True, "seq": 2044},
            "seq=2044 is not divisible by t=8 with sequence_parallel=True; needs equal parts of the sequence; try "
            "seq=2048, or sequence_parallel=false",
        ),
        (
            {"c": 3},
            "seq=2048 is not divisible by 2*c=6; needs two equal chunks of the sequence on every context rank; "
            "try seq=2052",
        ),
        (
            {"c": 2, "sequence_parallel": True, "seq": 2040},
            "seq=2040 is not divisible by c*t=16 with sequence_parallel=True; needs equal parts of the sequence; try "
            "seq=2048, or sequence_parallel=false",
        ),
        (
            {"c": 16, "context_exchange": "all_to_all"},
            "c=16 with context_exchange='all_to_all' does not divide the 12 key/value heads of a tensor rank; needs "
            "whole heads on every context rank; try c=12, or context_exchange='all_gather'",
        ),
        (
            {"c": 2, "context_exchange": "ring"},
            "context_exchange='ring' with attention='operators', whose softmax needs all scores of a query at once; "
            "needs fused attention; try attention='sdpa', or context_exchange='all_gather'",
        ),
        (
            {"c": 2, "d": 4, "data_parallel": "zero3", "zero3_shards": 3},
            "zero3_shards=3 with data_parallel='zero3' on d*c=8 GPUs with the same weights; needs 'zero3', a divisor",
        ),
        (
            {"sequence_parallel": True, "distribute_checkpointed_activations": True},
            "distribute_checkpointed_activations=True with sequence_parallel=True, by which tensor ranks keep 1/t of a "
            "block's input anyway; needs one of the two; try distribute_checkpointed_activations=false",
        ),
        (
            {"checkpoint_layers": 9},
            "checkpoint_layers=9 with 8 layers in a model chunk; needs at most as many; try checkpoint_layers=8",
        ),
        (
            {"d": 5, "b": 2, "B": 12},
            "B=12 does not split into microbatches of b=2 on d=5 replicas; needs a multiple of d*b=10; try B=20",
        ),
        ({"v": 4, "schedule": "gpipe"}, "v=4 with schedule='gpipe'; needs v=1"),
        ({"schedule": "interleaved"}, "v=1 with schedule='interleaved'; needs v >= 2 model chunks per device"),
        ({"v": 4, "p": 1}, "p=1 with v=4 model chunks; needs p >= 2 pipeline stages to interleave; try v=1"),
        (
            {"v": 4, "B": 20},
            "m=20 microbatches with v=4 model chunks on p=12 devices; needs m a multiple of p (Section 2.2.2); "
            "try m=24, or v=1",
        ),
        ({"t": 5}, "t=5 does not divide heads=96; needs whole attention heads on every tensor rank; try t=4"),
        (
            {"kv_heads": 40},
            "kv_heads=40 does not divide heads=96; needs equal groups of query heads; try kv_heads=32",
        ),
        ({"kv_heads": -1}, "kv_heads=-1 is not a positive whole number; needs kv_heads >= 1; try kv_heads=1"),
        (
            {"kv_heads": 4},
            "t=8 does not divide kv_heads=4; needs whole key/value heads on every tensor rank; try t=4",
        ),
        (
            {"ffn_hidden": 30004},
            "t=8 does not divide ffn_hidden=30004; needs equal parts of the MLP on every tensor rank; try t=4",
        ),
        ({"activation": "relu"}, "activation='relu' is unknown; needs one of gelu, swiglu, geglu"),
        ({"norm": "none"}, "norm='none' is unknown; needs one of layernorm, rmsnorm; try norm='layernorm'"),
        ({"positions": "alibi"}, "positions='alibi' is unknown; needs one of learned, rotary"),
        (
            {"positions": "rotary", "hidden": 96 * 3},
            "positions='rotary' with heads of size hidden/heads=3; needs an even size",
        ),
        ({"rope_theta": 0}, "rope_theta=0 is not a positive number; needs rope_theta > 0; try 10000.0"),
        ({"bias": 0}, "bias=0 is not a truth value; needs true or false; try bias=true"),
        ({"attention": "flash"}, "attention='flash' is unknown; needs one of operators, sdpa, auto"),
        (
            {"p": 64, "v": 2, "B": 64},
            "layers=96 for p*v=64*2=128 stages; needs a layer for each stage; try layers=128, or a smaller p",
        ),
    ],
)
def test_impossible_values_say_the_numbers_the_rule_and_a_fix(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        configured(**values)


def test_a_model_without_its_sizes_is_a_wrong_configuration_that_names_them() -> None:
    with pytest.raises(ConfigurationError, match=r"the model has no hidden, heads; needs a value of each"):
        TrainingConfig.from_plain({"layers": 4, "p": 2})

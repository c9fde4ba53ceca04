import pickle
import re
from dataclasses import MISSING, FrozenInstanceError, fields

import pytest

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig, padded_vocab
from ptdp_core.engine.settings import EngineSettings, OptimizerSettings, RunSettings
from ptdp_core.errors import ConfigurationError
from ptdp_core.fields import descriptions, smallest
from ptdp_core.schedules import default_schedule, names
from tests.processes import python

GPT3 = {"layers": 96, "hidden": 12288, "heads": 96, "seq": 2048, "vocab": 51200}


def configured(**values):
    return TrainingConfig.from_plain(GPT3 | {"p": 12, "t": 8, "B": 12} | values)


def test_letters_of_section_3_1():
    parallel = ParallelConfig(p=12, t=8, d=4, b=2, B=96)
    assert (parallel.n, parallel.m) == (384, 12)


def test_schedule_follows_v_unless_it_is_given():
    assert ParallelConfig(p=4, B=8).schedule == "1f1b"
    assert ParallelConfig(p=4, v=2, B=8).schedule == "interleaved"
    assert ParallelConfig(p=4, B=8, schedule="gpipe").schedule == "gpipe"


def test_fewer_microbatches_than_stages_are_legal_for_1f1b():
    assert ParallelConfig(p=16, t=8, B=1).m == 1


def test_plain_values_round_trip_and_ignore_other_keys():
    config = configured(v=4, label="not a field")
    assert TrainingConfig.from_plain(config.to_plain()) == config
    assert config.layers_per_chunk == 2


def test_records_of_the_papers_models_do_not_name_what_came_later():
    assert not {"kv_heads", "ffn_hidden", "activation", "norm", "bias", "attention"} & configured().to_plain().keys()
    later = configured(kv_heads=8, bias=False, attention="sdpa")
    assert {"kv_heads": 8, "bias": False, "attention": "sdpa"}.items() <= later.to_plain().items()
    assert TrainingConfig.from_plain(later.to_plain()) == later


def test_words_of_older_records_are_understood():
    older = {"scheme": "zero3", "data_parallel": "local", "p": 1, "t": 1, "d": 12}
    assert configured(**older).parallel.data_parallel == "zero3"
    assert configured(scheme="ptdp", data_parallel="torch").parallel.data_parallel == "torch"


@pytest.mark.parametrize("part", [ModelConfig, ParallelConfig, EngineSettings, OptimizerSettings, RunSettings])
def test_every_field_has_a_sentence_about_itself(part):
    for name, sentence in descriptions(part).items():
        assert re.fullmatch(r"[A-Z'].{7,220}\.", sentence), f"{name}: {sentence}"


@pytest.mark.parametrize("part", [ModelConfig, ParallelConfig, EngineSettings, OptimizerSettings, RunSettings])
def test_a_field_may_be_its_default_and_what_it_says_and_nothing_else(part):
    required = {item.name: 1 for item in fields(part) if item.default is MISSING}
    part(**required)
    for item in fields(part):
        if choices := item.metadata["choices"]:
            assert item.default in choices
            wrong = ["x".join(choices)]
        elif (least := smallest(item)) is not None:
            wrong = [least - 1, True, "1"]
        else:
            wrong = [2, None] if item.type is bool else [None]
        for value in wrong:
            with pytest.raises(
                ConfigurationError, match=rf"^{item.name}={re.escape(repr(value))} is .*; needs .*; try "
            ):
                part(**required | {item.name: value})


def test_the_sentence_of_a_schedule_does_not_grow_with_the_schedules_there_are():
    words = set(re.findall(r"[\w-]+", descriptions(ParallelConfig)["schedule"]))
    assert words & set(names()) == {default_schedule(1), default_schedule(2)}


def test_only_what_cannot_be_configured_is_an_error_of_the_configuration(tmp_path):
    own = tmp_path / "own.py"
    own.write_text("x = 1")
    for values in ({"layers": 0}, {"t": 5}, {"schedule": "1f1"}, {"v": 4, "B": 20}, {"schedule": str(own)}):
        with pytest.raises(ConfigurationError):
            configured(**values)


def test_configurations_do_not_change():
    with pytest.raises(FrozenInstanceError):
        configured().model.layers = 1


def test_a_model_is_found_among_equals_by_a_process_that_hashes_strings_otherwise(tmp_path):
    model, path = ModelConfig(4, 64, 4), tmp_path / "model"
    path.write_bytes(pickle.dumps((hash(model), model)))  # its hash is known by then
    code = (
        "import pathlib, pickle, sys; from ptdp_core.config import ModelConfig; "
        "_, model = pickle.loads(pathlib.Path(sys.argv[1]).read_bytes()); print(model in {ModelConfig(4, 64, 4)})"
    )
    assert {python("-c", code, path, env={"PYTHONHASHSEED": seed}).stdout for seed in "12"} == {"True\n"}


@pytest.mark.parametrize(("vocab", "t", "padded"), [(51200, 8, 51200), (51200, 32, 53248), (50257, 1, 50304)])
def test_vocabulary_is_padded_to_a_multiple_of_128_t(vocab, t, padded):
    assert padded_vocab(vocab, t) == padded

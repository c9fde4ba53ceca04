"""Models by the names that people have: their sizes, and a sentence for what of them is not modelled."""

import json

import pytest

from ptdp_core.formulas import active_parameters, parameters
from ptdp_core.simulator import cluster_path
from reproduce.cli import main
from reproduce.planning.models import find, named
from reproduce.planning.what_if import evaluate
from results.records.errors import UsageError

BILLIONS = {  # of the models' reports
    "llama-3-405b": 405,
    "mistral-7b": 7.24,
    "qwen2.5-7b": 7.6,
    "qwen2.5-32b": 32.5,
    "qwen2.5-72b": 72.7,
}
# Of mixtures of experts: all, and those that a token passes through; of gpt-oss without the word embedding.
MIXTURES = {
    "mixtral-8x7b": (46.7, 12.9),
    "mixtral-8x22b": (140.6, 39.2),
    "qwen3-30b-a3b": (30.5, 3.35),
    "qwen3-235b-a22b": (235.1, 22.2),
    "gpt-oss-120b": (116.8, 5.13),
}


@pytest.mark.parametrize(("name", "billions"), BILLIONS.items())
def test_a_model_has_the_parameters_of_its_name(name: str, billions: float) -> None:
    assert parameters(named(name)) / 1e9 == pytest.approx(billions, rel=0.05)


@pytest.mark.parametrize(("name", "billions"), MIXTURES.items())
def test_a_mixture_has_the_parameters_of_its_report_and_a_token_passes_through_some(
    name: str, billions: tuple[float, float]
) -> None:
    model = named(name)
    embedding = model.vocab * model.hidden if name.startswith("gpt-oss") else 0
    counts = parameters(model), active_parameters(model) - embedding
    assert [count / 1e9 for count in counts] == pytest.approx(billions, rel=0.005)


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("meta-llama/Llama-3.1-70B-Instruct", "llama-3-70b"),
        ("meta-llama/Meta-Llama-3-8B", "llama-3-8b"),
        ("meta-llama/Llama-2-7b-hf", "llama-2-7b"),
        ("405B", "llama-3-405b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("Qwen/Qwen2.5-72B-Instruct", "qwen2.5-72b"),
        ("deepseek-ai/DeepSeek-V3-Base", "deepseek-v3"),
        ("175B", "175b"),
    ],
)
def test_a_name_on_the_hub_is_a_name_here(name: str, same: str) -> None:
    assert find(name).name == same
    assert named(name) == named(same)


def test_what_is_not_modelled_is_said_in_one_sentence() -> None:
    assert find("llama-3-405b").not_modelled == ""
    assert find("mixtral-8x7b").not_modelled == find("qwen3-30b-a3b").not_modelled == ""
    assert find("deepseek-v3").not_modelled == find("kimi-k2").not_modelled == ""
    assert "attention over 128 tokens in every second layer" in find("gpt-oss-120b").not_modelled
    assert "biases of queries, keys and values" in find("qwen2.5-7b").not_modelled
    point = evaluate({"model": "gpt-oss-120b", "t": 8, "d": 8, "e": 8, "B": 64, "attention": "sdpa"}, 1, "h100")
    assert point["status"] == "ok"
    assert point["reason"].startswith("not modelled: biases, and attention")


def test_a_config_json_is_a_model(tmp_path, capsys) -> None:
    folder = tmp_path / "My-Model"
    folder.mkdir()
    config = {
        "model_type": "llama",
        "num_hidden_layers": 8,
        "hidden_size": 1024,
        "num_attention_heads": 16,
        "intermediate_size": 2816,
        "max_position_embeddings": 131072,
        "vocab_size": 32000,
    }
    (folder / "config.json").write_text(json.dumps(config))
    for name in (str(folder), str(folder / "config.json")):
        found = find(name)
        assert (found.name, found.model.mlp_width, found.model.seq) == ("my-model", 2816, 8192)
    job = ("--gpus", "8", "--batch", "64", "--results", str(tmp_path))
    assert main(["plan", "--model", str(folder / "config.json"), "--seq", "2048", *job]) == 0
    assert "MY-MODEL (8 layers" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "model_type=None is unknown; needs one of gpt2, llama"),
        ('{"model_type": "llama"}', "'num_attention_heads' is missing"),
        ("[1]", "is no JSON object"),
        ("{", "is no JSON object"),
        ('{"model_type": "mamba"}', "model_type='mamba' is unknown"),
    ],
)
def test_a_config_json_that_is_none_is_one_line(text, message, tmp_path, capsys) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    assert main(["plan", "--model", str(path), "--gpus", "8", "--batch", "64"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


def test_a_file_that_is_not_there_and_a_name_that_is_near() -> None:
    with pytest.raises(UsageError, match=r"cannot read nowhere/config\.json: No such file"):
        find("nowhere/config.json")
    with pytest.raises(UsageError, match="did you mean 'llama-3-70b'"):
        find("lama-3-70b")


@pytest.mark.parametrize("name", ["LLAMA3_70B", "llama3.1-70b", "meta-llama/Llama-3.1-70B-Instruct", "Llama-3-70B"])
def test_a_model_is_known_by_the_names_it_goes_by(name: str) -> None:
    assert find(name).name == "llama-3-70b"


@pytest.mark.parametrize("name", ["H100", "h100", "H100-4HCA", "GB200"])
def test_a_cluster_is_known_in_any_case(name: str) -> None:
    assert cluster_path(name).stem == name.lower()


@pytest.mark.slow
@pytest.mark.parametrize(("gpus_per_node", "gpus"), [(4, 144), (72, 144)])
def test_nodes_of_4_and_of_72_gpus_are_planned_for(gpus_per_node, gpus, tmp_path, capsys) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f'name = "mine"\ndescription = "mine"\nbase = "gb200"\ngpus_per_node = {gpus_per_node}\n')
    job = ("--model", "llama-3-8b", "--gpus", str(gpus), "--batch", "288", "--cluster", str(path))
    assert main(["plan", *job, "--results", str(tmp_path), "--json"]) == 0
    best = json.loads(capsys.readouterr().out)["configurations"][0]
    assert best["p"] * best["t"] * best["d"] == gpus

"""Models by the names that people have: their sizes, and a sentence for what of them is not modelled."""

import json
from pathlib import Path

import pytest

import reproduce
from ptdp_core.config import ModelConfig
from ptdp_core.formulas import active_parameters, parameters
from ptdp_core.simulator import cluster_path
from reproduce.planning import hub, models
from reproduce.planning.models import find, named
from reproduce.planning.what_if import evaluate
from results.records.errors import UsageError

BILLIONS = {  # of the models' reports
    "llama-3-405b": 405,
    "mistral-7b": 7.24,
    "qwen2.5-7b": 7.6,
    "qwen2.5-32b": 32.5,
    "qwen2.5-72b": 72.7,
    "qwen2.5-14b": 14.8,
    "mistral-small-24b": 23.6,
    "mistral-nemo": 12.2,
    "gemma-3-4b": 3.9,  # and its reader of pictures
    "gemma-3-12b": 11.8,
    "moonlight-16b-a3b": 15.96,
    "deepseek-v2-lite": 15.7,
    "allenai/OLMo-2-0325-32B": 32.2,
    "Qwen/QwQ-32B": 32.5,
    "Qwen/Qwen3-Next-80B-A3B-Instruct": 80,
    "nvidia/Nemotron-H-8B-Base-8K": 8.1,
}
# Of mixtures of experts: all, and those that a token passes through; of gpt-oss without the word embedding.
MIXTURES = {
    "mixtral-8x7b": (46.7, 12.9),
    "mixtral-8x22b": (140.6, 39.2),
    "qwen3-30b-a3b": (30.5, 3.35),
    "qwen3-235b-a22b": (235.1, 22.2),
    "gpt-oss-120b": (116.8, 5.13),
    "gpt-oss-20b": (20.9, 3.61),
    "qwen3-coder-480b-a35b": (480, 35.4),
}


def test_finding_a_model_reads_its_configuration_once_and_no_other(monkeypatch):
    described, known = [], hub.known
    monkeypatch.setattr(hub, "known", lambda name, config: described.append(name) or known(name, config))
    models._of_the_hub.cache_clear()
    for name in ("mistral-7b", "llama-3-70b", "175b", "mistral-7b"):
        find(name)
    assert described == ["mistral-7b"]


@pytest.mark.parametrize(("name", "billions"), BILLIONS.items())
def test_a_model_has_the_parameters_of_its_name(name, billions):
    assert parameters(named(name)) / 1e9 == pytest.approx(billions, rel=0.05)


@pytest.mark.parametrize(("name", "billions"), MIXTURES.items())
def test_a_mixture_has_the_parameters_of_its_report_and_a_token_passes_through_some(name, billions):
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
        ("meta-llama/Llama-3.3-70B-Instruct", "llama-3-70b"),
        ("Qwen/Qwen3-235B-A22B-Thinking-2507", "qwen3-235b-a22b"),
        ("mistralai/Mistral-Small-24B-Base-2501", "mistral-small-24b"),
        ("zai-org/GLM-4.6", "glm-4.5"),
    ],
)
def test_a_name_on_the_hub_is_a_name_here(name, same):
    assert find(name).name == same
    assert named(name) == named(same)


def test_what_is_not_modelled_is_said_in_one_sentence():
    assert find("llama-3-405b").unmodelled() == ""
    assert find("mixtral-8x7b").unmodelled() == find("qwen3-30b-a3b").unmodelled() == ""
    assert find("deepseek-v3").unmodelled() == find("kimi-k2").unmodelled() == ""
    assert find("gpt-oss-120b").unmodelled() == "biases (left out)"
    assert "biases of queries, keys and values" in find("qwen2.5-7b").unmodelled()
    point = evaluate({"model": "gpt-oss-120b", "t": 8, "d": 8, "e": 8, "B": 64, "attention": "sdpa"}, 1, "h100")
    assert point["status"] == "ok"
    assert point["reason"].startswith("not modelled: biases (left out)")


LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 8,
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "intermediate_size": 2816,
    "vocab_size": 32000,
}
USUAL = {  # keys of published files without effect on time and memory
    "architectures": ["LlamaForCausalLM"],
    "torch_dtype": "bfloat16",
    "bos_token_id": 1,
    "rms_norm_eps": 1e-05,
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "attention_dropout": 0.0,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0},
    "sliding_window": None,
    "use_cache": True,
    "_name_or_path": "x",
}


@pytest.fixture
def config_json(tmp_path):
    """Writes a model's config.json with these keys; returns its path."""

    def write(keys):
        path = tmp_path / "config.json"
        path.write_text(json.dumps(keys))
        return str(path)

    return write


QWEN_3 = {"model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 256}
SLIDING = {"layer_types": ["sliding_attention", "full_attention"] * 4, "sliding_window": 1024}


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"layer_types": ["linear_attention"] * 6 + ["full_attention"] * 2}, "linear attention in 6 of 8 layers"),
        ({"attention_bias": True}, "attention_bias=True (left out)"),
        ({"hidden_act": "gelu_pytorch_tanh"}, "hidden_act='gelu_pytorch_tanh' (taken as silu)"),
        ({"attention_dropout": 0.1}, "attention_dropout=0.1 (not known here, left out)"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping=30.0 (not known here, left out)"),
        ({"vision_config": {"depth": 32}}, "vision_config={'depth': 32} (not known here, left out)"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5"),
        ({"v_head_dim": 96, "kv_lora_rank": 64, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32}, "v_head_dim=96"),
        ({"intermediate_size": [2048, 4096] * 4}, "intermediate_size of 2048 to 4096, by layer (taken as their mean"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_whatever_a_config_json_has_and_the_model_has_not_is_named(keys, named, tmp_path, config_json):
    config_json(LLAMA | USUAL | keys)
    point = {"model": str(tmp_path), "seq": 32768, "t": 2, "d": 4, "B": 4, "attention": "sdpa"}
    assert find(str(tmp_path)).model.layers == 8
    assert named in evaluate(point, 1, "h100")["reason"]


PUBLISHED = json.loads(Path(__file__).with_name("configs.json").read_text())


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_config_json_is_the_nearest_model_with_all_that_it_lacks(name, config_json):
    entry = PUBLISHED[name]
    found = find(config_json(entry["config"]))
    assert parameters(found.model) / 1e9 == pytest.approx(
        entry["billions"], rel=0.07 if "mamba" in str(entry) or "lru" in str(entry) else 0.025
    )
    if "of_a_token" in entry:
        assert active_parameters(found.model) / 1e9 == pytest.approx(entry["of_a_token"], rel=0.06)
    assert entry.get("says", "") in found.unmodelled()


@pytest.mark.parametrize(
    ("keys", "dense", "pattern"),
    [
        ({"decoder_sparse_step": 2}, 0, "de"),
        ({"mlp_only_layers": [3]}, 0, "eeede"),
        ({"mlp_only_layers": [0, 1]}, 2, ""),
        ({"model_type": "deepseek_v2", "moe_layer_freq": 2}, 0, "ed"),
        ({"model_type": "x", "mlp_layer_types": ["dense"] * 2 + ["sparse"] * 6}, 2, ""),
        ({"model_type": "jamba", "expert_layer_period": 4, "expert_layer_offset": 1}, 0, "dedd"),
        ({"model_type": "step3", "moe_layers_enum": "4,5,6,7"}, 4, ""),
    ],
)
def test_layers_with_experts_are_those_of_the_configuration(keys, dense, pattern, config_json):
    model = find(config_json(LLAMA | QWEN_3 | keys)).model
    assert (model.dense_layers, model.layer_pattern) == (dense, pattern)


def test_a_model_that_is_mostly_unknown_is_refused_with_its_share(config_json, refused):
    path = config_json(LLAMA | {"hidden_size_per_layer_input": 256, "vocab_size_per_layer_input": 262144})
    line = refused("plan", "--model", path, "--gpus", "8", "--batch", "64")
    assert "model_type='llama': 76% of it is unknown here, embeddings of each layer (left out, +76.1%" in line
    assert "needs at most 33%" in line


def test_what_has_no_effect_is_not_named(config_json):
    assert find(config_json(LLAMA | USUAL)).missing == ()
    qwen = {"model_type": "qwen3", "sliding_window": 4096}  # use_sliding_window is off
    assert find(config_json(LLAMA | USUAL | qwen)).missing == ()


GEMMA_3 = {"model_type": "gemma3_text", "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 512}


@pytest.mark.parametrize(
    ("keys", "window", "layers"),
    [
        ({"model_type": "mistral", "sliding_window": 4096}, 4096, "w"),
        ({"model_type": "mistral", "sliding_window": None}, 0, "w"),
        (SLIDING, 1024, "wf"),
        (SLIDING | {"layer_types": ["full_attention"] * 2 + ["sliding_attention"] * 6}, 1024, "ffwwwwww"),
        ({"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 4096}, 4096, "w"),
        ({"model_type": "qwen3", "sliding_window": 4096}, 0, "w"),  # use_sliding_window is off
        (GEMMA_3 | {"sliding_window_pattern": 6}, 512, "wwwwwf"),
        (GEMMA_3, 512, "wwwwwf"),
    ],
)
def test_windows_by_layer_are_read(keys, window, layers, config_json):
    found = find(config_json(LLAMA | USUAL | keys))
    assert (found.model.window, found.model.window_layers) == (window, layers)
    assert not any("window" in item.text or "tokens" in item.text for item in found.missing)


def test_mistral_gpt_oss_and_gemma_3_are_described_by_their_config_json(config_json):
    mistral, gpt_oss = find("mistralai/Mistral-7B-v0.1").model, find("openai/gpt-oss-120b").model
    assert (mistral.window, mistral.window_layers) == (4096, "w")
    assert find("mistralai/Mistral-7B-Instruct-v0.3").model.window == 0
    assert (gpt_oss.window, gpt_oss.window_layers, gpt_oss.sinks) == (128, "wf", True)
    gemma = GEMMA_3 | {"query_pre_attn_scalar": 256, "rope_local_base_freq": 1e4, "cache_implementation": "hybrid"}
    found = find(config_json({key: value for key, value in (LLAMA | USUAL | gemma).items() if key != "hidden_act"}))
    model, missing = found.model, found.missing
    assert (model.activation, model.qk_norm, model.post_norms, model.tied_embeddings) == ("geglu", True, True, True)
    assert missing == ()


def test_it_is_said_wherever_the_model_is_used(tmp_path, config_json, points_file, refused, as_json):
    path = config_json(LLAMA | {"model_type": "mistral", "sliding_window": 4096, "attention_bias": True})
    point = {"model": path, "seq": 16384, "t": 2, "d": 4, "B": 4, "attention": "sdpa"}
    said = "attention_bias=True (left out)"
    assert said in refused("explain", points_file(point), "--seconds", "3", code=0)
    job = ("--gpus", "8", "--batch", "8", "--results", str(tmp_path))
    for seq in ("16384", "4096"):  # which the window does not cut
        assert said in as_json("plan", "--model", path, "--seq", seq, *job)["model"]["not_modelled"]
    (note,) = reproduce.simulate(point).notes
    assert said in note
    assert said in evaluate(point | {"B": 512, "b": 128}, 1, "h100")["reason"]  # does not fit


def test_a_config_json_is_read_as_the_weights_beside_it_are(config_json):
    """Qwen3-MoE with layers that have no experts, and query and key norms: the same parameters for plan and weights."""
    hugging_face = pytest.importorskip("reproduce.annex.weights.hugging_face")
    sizes = {"layers": 4, "hidden": 64, "heads": 4, "vocab": 128, "seq": 64, "ffn_hidden": 192, "head_dim": 32}
    common = {"activation": "swiglu", "norm": "rmsnorm", "positions": "rotary", "bias": False, "tied_embeddings": False}
    experts = {"experts": 4, "experts_per_token": 2, "expert_ffn_hidden": 32, "router": "softmax_before"}
    models = [sizes | common | {"head_dim": 0}, sizes | common | experts | {"qk_norm": True, "dense_layers": 2}]
    for model in (ModelConfig(**fields) for fields in models):
        found = find(config_json(hugging_face.config_of(model)))
        assert found.missing == ()
        assert found.model == hugging_face.model_of(hugging_face.config_of(model))
        assert parameters(found.model) == parameters(model)


def test_a_config_json_is_a_model(tmp_path, said):
    folder = tmp_path / "My-Model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA | {"max_position_embeddings": 131072}))
    for name in (str(folder), str(folder / "config.json")):
        found = find(name)
        assert (found.name, found.model.mlp_width, found.model.seq) == ("my-model", 2816, 8192)
    job = ("--gpus", "8", "--batch", "64", "--results", str(tmp_path))
    assert "MY-MODEL (8 layers" in said("plan", "--model", folder / "config.json", "--seq", "2048", *job)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "'num_hidden_layers' is missing"),
        ('{"model_type": "llama", "num_hidden_layers": 2}', "'num_attention_heads' is missing"),
        ("[1]", "is no JSON object"),
        ("{", "is no JSON object"),
        (json.dumps({**LLAMA, "block_configs": [{}] * 8}), "38% of it is unknown here, block_configs, by layer"),
    ],
)
def test_a_config_json_that_is_none_is_one_line(text, message, tmp_path, refused):
    path = tmp_path / "config.json"
    path.write_text(text)
    assert message in refused("plan", "--model", path, "--gpus", "8", "--batch", "64")


def test_a_file_that_is_not_there_and_a_name_that_is_near():
    with pytest.raises(UsageError, match=r"cannot read nowhere/config\.json: No such file"):
        find("nowhere/config.json")
    with pytest.raises(UsageError, match="did you mean 'llama-3-70b'"):
        find("lama-3-70b")


@pytest.mark.parametrize("name", ["LLAMA3_70B", "llama3.1-70b", "meta-llama/Llama-3.1-70B-Instruct", "Llama-3-70B"])
def test_a_model_is_known_by_the_names_it_goes_by(name):
    assert find(name).name == "llama-3-70b"


@pytest.mark.parametrize("name", ["H100", "h100", "H100-4HCA", "GB200"])
def test_a_cluster_is_known_in_any_case(name):
    assert cluster_path(name).stem == name.lower()


@pytest.mark.slow
@pytest.mark.parametrize(("gpus_per_node", "gpus"), [(4, 144), (72, 144)])
def test_nodes_of_4_and_of_72_gpus_are_planned_for(gpus_per_node, gpus, tmp_path, as_json):
    path = tmp_path / "mine.toml"
    path.write_text(f'name = "mine"\ndescription = "mine"\nbase = "gb200"\ngpus_per_node = {gpus_per_node}\n')
    job = ("--model", "llama-3-8b", "--gpus", str(gpus), "--batch", "288", "--cluster", str(path))
    best = as_json("plan", *job, "--results", tmp_path)["configurations"][0]
    assert best["p"] * best["t"] * best["d"] == gpus

"""What the nearest model has not of a configuration of Hugging Face's hub, each with its parameters and its FLOPs."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ptdp_core.config import LayerKind, ModelConfig
from ptdp_core.layers.blocks import LayerRun, block, heads_of
from ptdp_core.layers.state_space import CHUNK, KERNEL
from reproduce.planning.config_keys import BIASES, ENDS_WITHOUT_EFFECT, GATED, KINDS, WITHOUT_EFFECT, of_kind
from reproduce.planning.config_read import FULL, TOWER_HIDDEN, TOWER_LAYERS, WINDOW, HubConfig, LayerWords, first

NOTHING: tuple[Any, ...] = (None, False, 0, "", [], {})  # values by which a key says that there is none of it
LONGEST = 60  # characters of a value in a message


class Lack(NamedTuple):
    """What the nearest model has not, and what stands in its place; it matters beyond so many tokens.

    `parameters`, and `flops` of a token's forward pass, are what the real model has more than the nearest.
    """

    what: str
    how: str = "left out"
    parameters: float = 0.0
    flops: float = 0.0
    beyond: int = 0


def lacks(read: HubConfig, model: ModelConfig, layers: Sequence[LayerWords], known: Sequence[str]) -> Iterator[Lack]:
    """All that a configuration says and the model has not, in a fixed order; what was not asked for comes last.

    Of a kind that is `known` its embeddings are, too.
    """
    if "tie_word_embeddings" not in read and of_kind(read.kind, KINDS, None) is None and read.kind not in known:
        yield Lack("tie_word_embeddings is not said", "two tables, not one", parameters=-model.vocab * model.hidden)
    yield from _biases(read, model)
    yield from _activation(read, model)
    yield from _linear_attention(read, model, layers)
    yield from _other_heads(read, model)
    for key in sorted(read.averaged):
        values = read[key]
        yield Lack(f"{key} of {min(values)} to {max(values)}, by layer", "taken as their mean in all layers")
    for name, tower in read.towers.items():
        size = _tower(tower)
        yield Lack(f"{name} part of {size / 1e9:.2g} billion parameters", "left out, with what it reads", size)
    unread = (key for key in sorted(read) if key not in (*read.asked, *WITHOUT_EFFECT) and not key.startswith("_"))
    for key in unread:
        if not key.endswith(ENDS_WITHOUT_EFFECT) and read[key] not in NOTHING:
            value, shown = read[key], repr(read[key])
            shown = shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}..."
            if isinstance(value, list) and len(value) == model.layers and isinstance(value[0], dict):
                size = model.layers * sum(
                    item.elements for item in block(model, LayerRun(), model.usual_kind).parameters
                )
                yield Lack(f"{key}, by layer", "not known here, so any part of the layers", size, 2.0 * size)
            else:
                yield Lack(f"{key}={shown}", "not known here, left out")


def _biases(read: HubConfig, model: ModelConfig) -> Iterator[Lack]:
    """Biases of some linears, where the model has none."""
    of_qkv = model.layers * heads_of(model).all
    if name := of_kind(read.kind, BIASES, ""):
        every = model.layers * model.experts * (model.expert_width * model.branches + model.hidden)
        yield Lack(name, parameters=of_qkv + (every if read.kind == "gpt_oss" else 0))
    elif not model.bias:
        for key, size in (
            ("attention_bias", of_qkv),
            ("mlp_bias", model.layers * (model.branches * model.mlp_width + model.hidden)),
        ):
            if read.get(key):
                yield Lack(f"{key}={read[key]!r}", parameters=size)


def _activation(read: HubConfig, model: ModelConfig) -> Iterator[Lack]:
    usual = "silu" if model.activation == "swiglu" else "gelu"
    for key in ("hidden_act", "hidden_activation", "activation_function"):
        if usual not in (name := str(read.get(key) or usual)).replace("swish", "silu"):
            yield Lack(f"{key}={name!r}", f"taken as {usual}")


def _linear_attention(read: HubConfig, model: ModelConfig, layers: Sequence[LayerWords]) -> Iterator[Lack]:
    """Layers whose attention is linear in the sequence's length."""
    counts = Counter(layer.mixer for layer in layers if layer.mixer not in (FULL, WINDOW, ""))
    if not counts and model.mamba_heads:
        counts = Counter({"mamba beside attention": len(layers)})
    taken = _mixer_parameters(model, "mamba" if model.mamba_heads else "attention")
    how = f"taken as attention over {model.window or model.seq} tokens"
    how = "taken as a state-space layer" if model.mamba_heads else how
    for mixer, count in counts.items():
        own = _own_parameters(read, mixer, model)
        if own != taken:
            unknown = "" if own else ", of unknown size"
            more = count * ((own or 2 * taken) - taken)
            yield Lack(f"{mixer.replace('_', ' ')} in {count} of {len(layers)} layers{unknown}", how, more, 2.0 * more)
    if model.mamba_heads:
        for key, counted in (("chunk_size", CHUNK), ("conv_kernel", KERNEL)):
            if read.get(key, counted) != counted:
                yield Lack(f"{key}={read[key]}", f"counted as {counted}")


def _mixer_parameters(model: ModelConfig, mixer: str) -> int:
    own = block(model, LayerRun(), LayerKind(mixer=mixer, mlp=False)).parameters
    return sum(item.elements for item in own if item.name.startswith(f"{mixer}."))


def _own_parameters(read: HubConfig, mixer: str, model: ModelConfig) -> int:
    """Parameters of a layer's linear attention, a state-space layer's or other ones; 0 where nothing tells them."""
    h, states = model.hidden, read.states(model.hidden)
    if states is None:
        if mixer == "recurrence" and (width := read.get("lru_width")):  # two branches and a way back; gates by head
            return 3 * h * width + 2 * width**2 // model.heads + (KERNEL + 1) * width
        return 4 * h**2 if mixer == "conv" else 0  # of three gated branches
    heads, size, groups, state = states
    values, keys = heads * size, groups * state
    if "linear_num_value_heads" in read:  # queries, keys, values, their gate, two numbers a head; a convolution
        return h * (2 * keys + 3 * values + 2 * heads) + KERNEL * (2 * keys + values)
    if "linear_attn_config" in read:  # two gates of low rank
        return h * (2 * keys + 2 * values + heads) + 2 * size * (h + values) + KERNEL * (2 * keys + values)
    if not first(read, ("mamba_num_heads", "mamba_n_heads", "n_mamba_heads", "attn_type_list")):  # the first Mamba
        rank = read.get("mamba_dt_rank", h // 16)
        return 3 * h * values + values * (2 * rank + 2 * state + KERNEL)
    return _mixer_parameters(model, "mamba")


def _other_heads(read: HubConfig, model: ModelConfig) -> Iterator[Lack]:
    """Attention whose sizes are other ones than the model's, or that leaves tokens out."""
    if read.get("attn_output_gate", of_kind(read.kind, dict.fromkeys(GATED, True), False)):
        size = model.layers * model.hidden * heads_of(model).context
        if every := read.get("full_attention_interval"):
            size //= every
        yield Lack("gates of attention's outputs", parameters=size, flops=2.0 * size)
    values = read.get("v_head_dim")
    if values and values != model.head_size and model.kv_latent:
        more = model.layers * model.heads * (values - model.head_size) * (model.kv_latent + model.hidden)
        yield Lack(f"v_head_dim={values}", f"values are taken as large as keys, {model.head_size}", more, 2.0 * more)
    if top := read.get("index_topk"):
        inner, queries = read.get("index_head_dim", 128), read.get("index_n_heads", 64)
        size = model.layers * (inner * queries * (model.query_latent or model.hidden) + model.hidden * inner)
        yield Lack(f"attention to index_topk={top} chosen tokens", "taken as full attention", size, 2.0 * size, top)
    if read.get("parallel_attn_mlp_res"):
        yield Lack("an MLP beside attention and experts", "taken as a shared expert")
    if size := read.get("hidden_size_per_layer_input"):
        yield Lack(
            "embeddings of each layer", parameters=model.layers * size * read.get("vocab_size_per_layer_input", 0)
        )
    predicts = read.get("mtp_hybrid_override_pattern") or read.get("mtp_layers_block_type") or "*E"
    if predicts not in ("*E", ["attention", "moe"]):
        yield Lack(f"layers of multi-token prediction {predicts}", "taken as *E")
    if model.positions == "rotary" and (turned := read.get("partial_rotary_factor", 1.0)) != 1:
        yield Lack(f"partial_rotary_factor={turned}", "all of a head is turned")


def _tower(tower: Mapping[str, Any]) -> float:
    """Parameters of the layers of a transformer for other inputs."""
    h, layers = first(tower, TOWER_HIDDEN), first(tower, TOWER_LAYERS)
    width = first(tower, ("intermediate_size", "encoder_ffn_dim")) or h * (tower.get("mlp_ratio") or 4)
    return float(layers * (4 * h**2 + 2 * h * width))

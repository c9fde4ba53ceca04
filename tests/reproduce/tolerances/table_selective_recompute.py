"""Edges of the claims on selective recomputation."""

from ptdp_core.simulator.memory import LayerBytes
from tests.reproduce.tolerances.edges import between, switch

MODULE = "reproduce.annex.papers.korthikanti.table_selective_recompute"
MODELS = ("22B", "175B", "530B", "1T")
HIDDEN = {"22B": 6144, "175B": 12288, "530B": 20480, "1T": 25600}
SAVED, MORE = {"175B": 0.70, "530B": 0.65}, {"175B": 0.027, "530B": 0.016}


def name_of(model):
    return next(name for name, hidden in HIDDEN.items() if hidden == model.hidden)


def kept_with(saved):
    """What a layer keeps: 1, less what selective recomputation saves of a model."""
    return lambda config: 1 - saved[name_of(config.model)] * (config.parallel.recompute == "selective")


def core_with(more):
    """FLOPs of the attention core, over a layer's, which are then 1."""
    return lambda model, B: more[name_of(model)]


def of_a_layer(kept_bytes):
    """What `layer_bytes` gives, with so many that are kept."""
    return lambda config: LayerBytes(0, 0, kept_bytes(config), 0, 0)


def formulas(saved=SAVED, more=MORE):
    return {
        f"{MODULE}.layer_bytes": lambda x: of_a_layer(kept_with({**SAVED, **dict.fromkeys(saved, x)})),
        "ptdp_core.formulas.attention_core_flops": lambda x: core_with({**MORE, **dict.fromkeys(more, x)}),
        "ptdp_core.formulas.layer_forward_flops": lambda x: lambda model, B: 1.0,
    }


EDGES = {
    "saves_70_and_65_percent": [
        between("rounded to the digits printed", said - digit / 2, said + digit / 2, patch=patched(model))
        for table, digit, patched in (
            (SAVED, 0.01, lambda model: formulas(saved=(model,), more=())),
            (MORE, 0.001, lambda model: formulas(saved=(), more=(model,))),
        )
        for model, said in table.items()
    ],
    "both_make_it_fit": [
        switch(
            words,
            peak_memory=1,
            out=lambda point, x, key=f"{model}_{technique}", fits=fits: (
                bool(x) != fits if point.key == key else point.key.endswith("_none")
            ),
        )
        for model in MODELS
        for words, technique, fits in (
            ("out of memory with nothing recomputed", "none", False),
            ("not with both techniques", "selective_sequence", True),
        )
    ],
}

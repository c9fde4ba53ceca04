"""The models of the paper: Table 1's ten with the configuration of their runs, and claims that name a model's size."""

from collections.abc import Mapping, Sequence
from typing import Any

from ptdp_core.config import ModelConfig
from ptdp_core.formulas import parameters
from reproduce.experiment import published
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.claims import Judge, Judgement, consistent_if
from reproduce.experiment.results import Results, numbers_of
from reproduce.experiment.sweep import Level

SIZES = ("layers", "hidden", "heads", "seq", "vocab")
TOLERANCE = (
    "the number of parameters by eq. (2), with V = 51200 and s = 2048, rounded to the digits printed, is {printed} "
    "billion; the rest of the sentence is not tested"
)
ABOUT = (
    "our reading of the source's '~', which it does not print, as 'about': the number of parameters by eq. (2), with "
    "V = 51200 and s = 2048, is within 10% of each number printed, {printed} billion"
)
GPT_3 = "fig_interleaved"  # whose entry in `published.json` has the 175-billion model

# What models of Llama's kind share.
LLAMA: dict[str, Any] = {
    "activation": "swiglu", "norm": "rmsnorm", "positions": "rotary", "tied_embeddings": False, "bias": False,
}  # fmt: skip


def table_1() -> list[Level]:
    """Table 1's models, smallest first: size as printed ('1008B'), and the configuration of its run, d = n/(p*t)."""
    rows = []
    for printed in published.rows("table_weak_scaling"):
        size = f"{printed['parameters_B']:g}"
        kept = ("layers", "hidden", "heads", "p", "t", "v", "b", "B", "data_parallel")
        parameters = {**{name: printed[name] for name in kept}, **published.text_sizes("table_weak_scaling")}
        parameters["d"] = printed["gpus"] // (printed["p"] * printed["t"])
        rows.append(Level(f"{size}B", f"model_{size.replace('.', '_')}b", parameters))
    return rows


def levels_of_table_1(**parameters: Any) -> list[Level]:
    """The models of Table 1 with their names and further parameters."""
    return [Level(row.label, row.key, {**row.parameters, "model": row.label, **parameters}) for row in table_1()]


def sizes_of(model: str) -> dict[str, int]:
    """Layers, hidden size, heads, sequence length and vocabulary of '175B' (GPT-3) or '530B' (in Table 1)."""
    if model == "175B":
        return published.model(GPT_3)
    label = {"530B": "529.6B"}[model]
    (row,) = (row for row in table_1() if row.label == label)
    return {name: row.parameters[name] for name in SIZES}


def model_of(values: Mapping[str, Any]) -> ModelConfig:
    """The model of a point's parameters."""
    return ModelConfig(**{name: values[name] for name in SIZES})


def rounds_to(printed: str, count: float) -> bool:
    """Whether `printed`, in billions, is `count` rounded to as many digits."""
    half = 0.5 * 10.0 ** -len(printed.partition(".")[2])
    return abs(count / 1e9 - float(printed)) <= half * (1 + 1e-9)


def _about(printed: str, count: float) -> bool:
    return abs(count / (float(printed) * 1e9) - 1) <= 0.10


def size_claim(
    artifact: Artifact,
    id: str,
    sentence: str | Judge,
    place: str,
    printed: Sequence[tuple[str, str]],
    about: bool = False,
) -> None:
    """Add the claim that models of an artifact have the sizes `printed`: (billions as printed, key of a point).

    With `about` the source of the sentence says "~" of them, which is not printed.
    """

    words, rule = (ABOUT, "ours") if about else (TOLERANCE, "rounding")
    words = words.format(printed=" and ".join(said for said, _ in printed))

    @artifact.claim(words, place, sentence=sentence, fidelity="derived", id=id, rule=rule)
    def judge(results: Results) -> Judgement:
        models = [(said, model_of(results.point(key).parameters)) for said, key in printed]
        fits = _about if about else rounds_to
        wrong = [said for said, model in models if not fits(said, parameters(model))]
        text = "; ".join(
            f"{said} billion printed, eq. (2) gives {parameters(model) / 1e9:.2f} billion for {model.layers} layers, "
            f"hidden size {model.hidden} ({12 * model.layers * model.hidden**2 / 1e9:.1f} without embeddings)"
            for said, model in models
        )
        counts = {i: parameters(model) for i, (_, model) in enumerate(models)}
        return consistent_if(not wrong, text, numbers_of("derived", "count", parameters_=counts))


# Figure 12's layers, fewer of them, on 4 stages of 2 GPUs, each stage a node: what its schedules are emulated with.
FIGURE_12_ON_A_LAPTOP: dict[str, Any] = {"gpus_per_node": 2, "layers": 8, "hidden": 12288, "heads": 96, "p": 4, "t": 2}

"""Claims that name a model's size: held against eq. (2) for the model that was configured."""

from collections.abc import Mapping, Sequence
from math import floor

from benchmarks.records import Number
from ptdp_core.config import ModelConfig
from ptdp_core.formulas import parameters
from reproduce.experiment.artifact import Claim, Judgement, Results, Scalar

TOLERANCE = "the number printed is eq. (2), rounded or cut off to the digits printed"


def model_of(values: Mapping[str, Scalar]) -> ModelConfig:
    """The model of a point's parameters."""
    return ModelConfig(**{name: int(str(values[name])) for name in ("layers", "hidden", "heads", "seq", "vocab")})


def agrees(printed: str, count: float) -> bool:
    """Whether `printed`, in billions, is `count` rounded or cut off to as many digits."""
    digits = len(printed.partition(".")[2])
    return float(printed) in (round(count / 1e9, digits), floor(count / 1e9 * 10**digits) / 10**digits)


def size_claim(id: str, sentence: str, place: str, printed: Sequence[tuple[str, str]]) -> Claim:
    """The claim that the models of some points have the sizes `printed`: (billions as printed, key of a point)."""

    def judge(results: Results) -> Judgement:
        counts = [(said, model_of(results.point(key).parameters)) for said, key in printed]
        wrong = [said for said, model in counts if not agrees(said, parameters(model))]
        text = "; ".join(
            f"{said} billion printed, eq. (2) gives {parameters(model) / 1e9:.2f} billion for {model.layers} layers, "
            f"hidden size {model.hidden} ({12 * model.layers * model.hidden**2 / 1e9:.1f} without embeddings)"
            for said, model in counts
        )
        numbers = {
            f"parameters_{i}": Number(parameters(model), "count", "derived") for i, (_, model) in enumerate(counts)
        }
        return Judgement("paper inconsistent" if wrong else "holds", text, numbers)

    return Claim(id, sentence, place, "derived", TOLERANCE, judge)

"""The judge of claims that print sizes of models: billions of parameters by eq. (2), to the digits printed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ptdp_core.config import ModelConfig
from ptdp_core.formulas import parameters
from reproduce.experiment.claims import Judgement, consistent_if
from reproduce.experiment.results import Results, numbers_of

SIZES = ("layers", "hidden", "heads", "seq", "vocab")
ROUNDED = (
    "the number of parameters by eq. (2), with V = 51200 and s = 2048, rounded to the digits printed, is {printed} "
    "billion; the rest of the sentence is not tested"
)
ABOUT = (
    "our reading of the source's '~', which it does not print, as 'about': the number of parameters by eq. (2), with "
    "V = 51200 and s = 2048, is within 10% of each number printed, {printed} billion"
)


def model_of(values: Mapping[str, Any]) -> ModelConfig:
    """The model of a point's parameters."""
    return ModelConfig(**{name: values[name] for name in SIZES})


def rounds_to(printed: str, count: float) -> bool:
    """Whether `printed`, in billions, is `count` rounded to as many digits."""
    half = 0.5 * 10.0 ** -len(printed.partition(".")[2])
    return abs(count / 1e9 - float(printed)) <= half * (1 + 1e-9)


@dataclass(frozen=True)
class Sized:
    """Judges whether models have the sizes `printed`: the key of a point by the billions of its model, as printed.

    With `about` the source of the sentence says "~" of them, which is not printed.
    """

    printed: Mapping[str, str]
    about: bool = False

    @property
    def tested(self) -> str:
        """What is tested, in words."""
        return (ABOUT if self.about else ROUNDED).format(printed=" and ".join(self.printed))

    def __call__(self, results: Results) -> Judgement:
        """The verdict on the models of these points."""
        models = {said: model_of(results.point(key).parameters) for said, key in self.printed.items()}
        counts = {said: parameters(model) for said, model in models.items()}
        text = "; ".join(
            f"{said} billion printed, eq. (2) gives {counts[said] / 1e9:.2f} billion for {model.layers} layers, "
            f"hidden size {model.hidden} ({12 * model.layers * model.hidden**2 / 1e9:.1f} without embeddings)"
            for said, model in models.items()
        )
        numbers = numbers_of("derived", "count", parameters_=dict(enumerate(counts.values())))
        return consistent_if(all(self._fits(said, count) for said, count in counts.items()), text, numbers)

    def _fits(self, said: str, count: float) -> bool:
        return abs(count / (float(said) * 1e9) - 1) <= 0.10 if self.about else rounds_to(said, count)

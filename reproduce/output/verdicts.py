"""What each verdict on a claim means, and how it is shown on a terminal and on the report's page."""

from typing import NamedTuple


class VerdictLook(NamedTuple):
    """What a verdict means, how the headline says it of one claim and of several, rich's style, and the page's tag."""

    meaning: str
    one: str
    several: str
    style: str
    kind: str


VERDICT_LOOKS = {
    "holds": VerdictLook(
        "the results agree with the sentence, within the tolerance stated beforehand",
        *("holds", "hold", "green", "good"),
    ),
    "contradicted": VerdictLook(
        "they do not",
        *("is contradicted", "are contradicted", "bold red", "bad"),
    ),
    "inconclusive": VerdictLook(
        "a result that it needs is missing, or the verdict changes inside the simulator's margins",
        *("is inconclusive", "are inconclusive", "yellow", "warn"),
    ),
    "paper inconsistent": VerdictLook(
        "the paper's own numbers contradict it",
        *("the paper's own numbers contradict", "the paper's own numbers contradict", "magenta", "odd"),
    ),
    "not testable here": VerdictLook(
        "it needs a better fidelity, or hardware that was not there",
        *("cannot be tested here", "cannot be tested here", "dim", ""),
    ),
}
VERDICT_MEANINGS = "\n".join(f"  {verdict:<20} {look.meaning}" for verdict, look in VERDICT_LOOKS.items())

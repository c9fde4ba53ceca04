"""What each verdict on a claim means, and how it is shown on a terminal and on the report's page."""

from typing import NamedTuple


class VerdictLook(NamedTuple):
    """A verdict's meaning, its words in the headline, its style on a terminal (rich), and its kind of tag on the page.

    `singular` and `plural` are what the headline says of one claim and of several.
    """

    meaning: str
    singular: str
    plural: str
    style: str
    kind: str


VERDICT_LOOKS = {
    "holds": VerdictLook(
        "the results agree with the sentence, within the tolerance stated beforehand",
        *("holds", "hold", "green", "good"),
    ),
    "contradicted": VerdictLook(
        "the results disagree with the sentence",
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

"""What each verdict on a claim means, and how it is shown on a terminal and on the report's page."""

from typing import NamedTuple

from results.records import ClaimResult


class VerdictLook(NamedTuple):
    """A verdict's words and meaning, its words in the headline, its style on a terminal (rich), its tag on the page.

    `shown` is what readers see of it; records keep the older name. `singular` and `plural` are what the headline says
    of one sentence and of several, the number at `{n}`.
    """

    shown: str
    meaning: str
    singular: str
    plural: str
    style: str
    kind: str


VERDICT_LOOKS = {
    "holds": VerdictLook(
        *("holds", "the results agree with the sentence, by the bound that its words give"),
        *("{n} holds", "{n} hold", "green", "good"),
    ),
    "contradicted": VerdictLook(
        *("contradicted", "the results disagree with the sentence, a simulation by more than its margin"),
        *("{n} does not", "{n} do not", "bold red", "bad"),
    ),
    "inconclusive": VerdictLook(
        "too near to call",
        "another verdict lies inside the simulator's margin, or what a plot was read to; a number is missing, has no "
        "known error, or was set with the sentence itself",
        *("for {n} the simulator is not sure enough",) * 2,
        *("yellow", "warn"),
    ),
    "paper inconsistent": VerdictLook(
        *("the paper's own numbers disagree", "what the paper prints and plots itself contradicts the sentence"),
        *("{n} the paper's own numbers disagree with",) * 2,
        *("magenta", "odd"),
    ),
    "not testable here": VerdictLook(
        *(
            "not testable here",
            "what would test it is not here: a better fidelity, another scale, its hardware, a number that is not "
            "printed",
        ),
        *("{n} cannot be tested here", "{n} cannot be tested here", "dim", ""),
    ),
}
SHOWN = {verdict: look.shown for verdict, look in VERDICT_LOOKS.items()}
VERDICT_MEANINGS = "\n".join(f"  {look.shown}: {look.meaning}" for look in VERDICT_LOOKS.values())
BY = {
    "derived": "derived",
    "counted": "counted",
    "emulated": "emulated",
    "measured": "measured",
    "paper": "by the paper's own points",
}
SIMULATED = {"holds": "simulated, all over its margin", "contradicted": "simulated, beyond its margin"}


def by_what(claim: ClaimResult) -> str:
    """By what a claim was judged: 'derived', 'simulated, beyond its margin'; '' for one that was not."""
    if claim.by == "simulated":
        return SIMULATED.get(claim.verdict, "simulated")
    return BY.get(claim.by or "", "")


def told(claim: ClaimResult) -> str:
    """A claim's verdict and by what: 'too near to call (simulated)'."""
    by = by_what(claim)
    return f"{SHOWN[claim.verdict]} ({by})" if by else SHOWN[claim.verdict]

"""Verdicts in words: what each means, how it is shown, and the answer to whether the papers hold.

`answer` takes what was judged, one set of claims and one count of their verdicts for each paper, and for all together;
`reproduce verify`, `reproduce all`, `reproduce report` and the README print its words.
"""

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from reproduce.experiment import catalog, papers
from reproduce.experiment.artifact import IN_THE_PAPER, Artifact
from reproduce.experiment.claims import OURS, quoted
from results.records import VERDICTS, ClaimResult, Record
from results.records.record import BY as JUDGED_BY


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


OPEN = ("inconclusive", "not testable here")
BRIEFLY = ("inconclusive", "paper inconsistent", "not testable here")  # the reason alone is shown
SENTENCE, REASON = 150, 180  # characters of a sentence, and of a reason, where they are shortened
LATEX = (
    (r"~?\\(?:cite|footnote|label)\{[^{}]*\}", ""),
    (r"\\ref\{[^{}]*\}", "…"),
    (r"\\(?:emph|textbf|textit|texttt|text|mathrm)\{([^{}]*)\}", r"\1"),
    (r"\\cdot\b\s*", "· "),
    (r"\\times\b\s*", "×"),
    (r"\\gg\b", "≫"),
    (r"\\S(?![a-z])", "§"),
    (r"\\(?:left|right)\b\s*", ""),
    (r"\\(?:sim|approx)\b\s*", "≈"),
    (r"\\l(?:e|eq)\b\s*", "≤ "),
    (r"([_^])\{([^{}]*)\}", r"\1\2"),
    (r"\\sqrt\{([^{}]*)\}", r"sqrt(\1)"),
    (r"\\d?frac\{([^{}]*)\}\{([^{}]*)\}", r"(\1)/(\2)"),
    (r"\(([\w.^]+|\([^()]*\)[^()+-]*\([^()]*\))\)/", r"\1/"),  # what needs no brackets: 1/v, 8TP/(nX)
    (r"/\((\w'?|t_\w+)\)", r"/\1"),
    (r"\\([%&#$_ ])", r"\1"),
    (r"\$", ""),
    (r"~", " "),
    (r"---?", "–"),
    (r"``|''", '"'),
)


def by_what(claim: ClaimResult) -> str:
    """By what a claim was judged: 'derived', 'simulated, beyond its margin'; '' for one that was not."""
    if claim.by == "simulated":
        return SIMULATED.get(claim.verdict, "simulated")
    return BY.get(claim.by or "", "")


def told(claim: ClaimResult) -> str:
    """A claim's verdict and by what: 'too near to call (simulated)'."""
    by = by_what(claim)
    return f"{SHOWN[claim.verdict]} ({by})" if by else SHOWN[claim.verdict]


def plain(sentence: str) -> str:
    """A sentence of the paper's source without its LaTeX."""
    for pattern, replacement in LATEX:
        sentence = re.sub(pattern, replacement, sentence)
    return sentence


@dataclass(frozen=True)
class Judged:
    """A claim of the paper with its verdict; `in_the_paper`: the paper's own points contradict the sentence, too."""

    artifact: Artifact
    claim: ClaimResult
    in_the_paper: bool = False

    @property
    def name(self) -> str:
        """'fig_microbatch.best_microbatch_2 (Figure 16)'."""
        return f"{self.artifact.id}.{self.claim.id} ({self.artifact.label})"

    @property
    def sentence(self) -> str:
        """The sentence as people write it, on one line, cut if it is long."""
        shortened = textwrap.shorten(plain(self.claim.sentence), SENTENCE, placeholder=" ...")
        return quoted(shortened, self.claim.place)

    @property
    def finding(self) -> str:
        """What was found instead of what the sentence says, with the numbers."""
        too = "; the paper's own points contradict it, too" if self.in_the_paper else ""
        return f"{self.claim.explanation}{too}"


@dataclass(frozen=True)
class Answer:
    """The claims that were judged, each once; how many others there are; and whether all artifacts were asked.

    `papers` are the answers for each of several papers, by what tables call them. `elsewhere` names the cluster that
    was simulated, if it is not the papers' own: then nothing is said of whether they hold.
    """

    claims: tuple[Judged, ...]
    unjudged: int = 0
    whole: bool = True
    papers: Mapping[str, "Answer"] = field(default_factory=dict)
    elsewhere: str = ""

    @property
    def counts(self) -> dict[str, int]:
        """Claims by verdict."""
        return {verdict: len(self.of(verdict)) for verdict in VERDICTS}

    def of(self, verdict: str) -> tuple[Judged, ...]:
        """The claims with a verdict, in the order of the catalogue."""
        return tuple(judged for judged in self.claims if judged.claim.verdict == verdict)

    @property
    def by_what(self) -> dict[str, tuple[int, int]]:
        """By what sentences were judged, of `results.records.BY`: how many were decided by it, how many stay open."""
        judged = {by: [each for each in self.claims if each.claim.by == by] for by in JUDGED_BY}
        left = {by: sum(each.claim.verdict in OPEN for each in of) for by, of in judged.items()}
        return {by: (len(of) - left[by], left[by]) for by, of in judged.items()}

    @property
    def not_judged(self) -> int:
        """Sentences that nothing judged: not testable here, without a number that they need, or without results."""
        return len(self.claims) + self.unjudged - sum(map(sum, self.by_what.values()))

    @property
    def question(self) -> str:
        """What is answered."""
        return f"Do the {len(self.papers)} papers hold?" if self.papers else "Does the paper hold?"

    @property
    def headline(self) -> str:
        """The answer in one sentence."""
        if not len(self.claims) + self.unjudged:
            return "None of these claims is the paper's."
        if self.elsewhere:
            return f"Simulated on {self.elsewhere}, on which no paper measured: {self.verdicts}."
        return f"{self.question} {self.verdicts}." if self.whole else f"{self.verdicts}."

    @property
    def by_paper(self) -> list[str]:
        """A line for each of several papers: 'Zero Bubble 2024: 30 of its 40 sentences hold; ...'."""
        return [f"{name}: {each.verdicts}" for name, each in self.papers.items()]

    @property
    def verdicts(self) -> str:
        """How many sentences have which verdict: '3 of its 5 sentences hold; 2 do not'."""
        number, held = len(self.claims) + self.unjudged, len(self.of("holds"))
        whose = "their " if self.papers else "its " if self.whole else ""
        if not self.claims:
            return f"none of {whose}{number} sentence{'s' * (number != 1)} is judged yet"
        parts = [f"{held} of {whose}{number} sentence{'s' * (number != 1)} {'holds' if held == 1 else 'hold'}"]
        for verdict, look in VERDICT_LOOKS.items():
            judged = self.of(verdict)
            if not judged or verdict == "holds":
                continue
            too = sum(claim.in_the_paper for claim in judged)
            also = f" ({too} of them also by the paper's own points)" if too else ""
            parts.append((look.plural if len(judged) > 1 else look.singular).format(n=len(judged)) + also)
        if self.unjudged:
            parts.append(f"{self.unjudged} not judged yet")
        return "; ".join(parts)

    def lines(self, width: int = 100) -> list[str]:
        """The answer for a terminal: the headline, then what does not hold and by how much, and what is not known."""
        lines = [line for text in (self.headline, *self.by_paper) for line in textwrap.wrap(text, width)]
        for verdict in VERDICT_LOOKS:
            judged = () if verdict == "holds" else self.of(verdict)
            lines += ["", f"{SHOWN[verdict]}:"] if judged else []
            for claim in judged:
                lines.append(f"  {claim.name}")
                if verdict in BRIEFLY:
                    lines += _wrapped(textwrap.shorten(claim.finding, REASON, placeholder=" ..."), width)
                else:
                    lines += [*_wrapped(claim.sentence, width), *_wrapped(claim.finding, width)]
        return lines


def answer(claims: Mapping[str, Sequence[ClaimResult]], ids: Sequence[str] = (), paper: str | None = None) -> Answer:
    """The answer from the judged claims of each artifact, by its id (`claims_of` takes them from records).

    The claims that count are those of the papers that the catalogue's artifacts have now, each once; with `ids`, those
    of these artifacts only, with `paper`, those of this one.
    """
    groups = groupby(ids or catalog.ids(paper), lambda id: catalog.load(id).paper)
    parts = {papers.paper(name).short: _of_paper(claims, tuple(of_paper), not ids) for name, of_paper in groups}
    parts = {name: part for name, part in parts.items() if part.claims or part.unjudged}
    if len(parts) <= 1:
        return next(iter(parts.values()), Answer((), whole=not ids))
    together = tuple(judged for part in parts.values() for judged in part.claims)
    return Answer(together, sum(part.unjudged for part in parts.values()), not ids, parts)


def _of_paper(claims: Mapping[str, Sequence[ClaimResult]], ids: Sequence[str], whole: bool) -> Answer:
    """The answer for artifacts of one paper."""
    judged: list[Judged] = []
    unjudged = 0
    for artifact in map(catalog.load, ids):
        known = {claim.id for claim in artifact.claims if claim.place != OURS}
        results = {claim.id: claim for claim in claims.get(artifact.id, ()) if claim.id in known}
        unjudged += len(known) - len(results)
        for id, claim in results.items():
            twin = results.get(f"{id}{IN_THE_PAPER}")
            in_the_paper = twin is not None and twin.verdict == "paper inconsistent"
            judged.append(Judged(artifact, claim, in_the_paper and claim.verdict == "contradicted"))
    return Answer(tuple(judged), unjudged, whole)


def claims_of(records: Iterable[Record]) -> dict[str, tuple[ClaimResult, ...]]:
    """The claims by artifact, from those of the records that can answer for the paper.

    These are an artifact's complete results at its first fidelity and scale, on the cluster of its paper, as `reproduce
    all` makes them: what is emulated at another size, measured on another machine or simulated on another cluster says
    nothing new of the paper's sentences.
    """
    claims = {}
    for record in records:
        if record.id in catalog.ids() and record.state == "complete":
            artifact = catalog.load(record.id)
            cluster = record.provenance.cluster
            at_home = cluster is None or cluster.name == artifact.cluster
            if at_home and (record.fidelity, record.scale) == (artifact.fidelities[0], artifact.scales[0]):
                claims[record.id] = record.claims
    return claims


def _wrapped(text: str, width: int) -> list[str]:
    indent = " " * 6
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent, break_long_words=False)

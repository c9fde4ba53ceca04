"""The rules that bounds come from: what they allow, what docs/reading.md says of them, and claims that name them."""

from math import inf

import pytest

from reproduce.experiment.claims import RULES, Claim, Judgement, allowed, allows
from reproduce.experiment.told import bounds_of
from results import ROOT


def test_the_page_has_the_table():
    page = (ROOT / "docs" / "reading.md").read_text()
    for name, rule in RULES.items():
        assert f"| `{name}` | {rule.words} | {rule.meaning} |" in page


@pytest.mark.parametrize(
    ("rule", "printed", "step", "expected"),
    [
        ("rounding", 34, 1, (33.5, 34.5)),
        ("rounding", 0.0433, 0.0001, (0.04325, 0.04335)),
        ("about", -15, 1, (-16.5, -13.5)),
        ("up to", 2, 1, (1.5, 2.5)),
        ("more than", 0.9, 0.1, (0.9, inf)),
        ("less than", 0.01, 0.01, (-inf, 0.01)),
        ("most", 1.0, 0.0, (0.5, inf)),
        ("nearly", 0.5, 0.1, (0.45, 0.5)),
        ("comparable", 1.0, 0.0, (0.95, 1.05)),
        ("much larger", 1.0, 0.0, (10, inf)),
        ("negligible", 1.0, 0.0, (-0.02, 0.02)),
        ("reproduced", 1.0, 0.0, (0.9, 1.1)),
    ],
)
def test_what_a_rule_allows(rule, printed, step, expected):
    low, high = allowed(rule, printed, step)
    assert (low, high) == pytest.approx(expected)
    for value, inside in ((low - 1e-6, False), (low + 1e-6, True), (high - 1e-6, True), (high + 1e-6, False)):
        if abs(value) != inf:
            assert allows(rule, value, printed, step) is inside


def test_an_open_end_is_not_allowed():
    assert not allows("direction", 1.0)
    assert not allows("most", 0.5)
    assert allows("more than", 1.0)


def test_a_rule_without_an_interval_says_so():
    with pytest.raises(ValueError, match="rule='ours' gives no interval"):
        allowed("ours", 1.0)


def test_a_claim_names_a_rule_that_is_known():
    with pytest.raises(ValueError, match=r"rule='abuot' of claim 'c'; needs one of rounding, about"):
        Claim("c", "S.", "Section 1", "derived", "-", lambda results: Judgement("holds", ""), rule="abuot")


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"rule": "up to", "printed": 1.15, "step": 0.01}, {"at_least": 1.145, "at_most": 1.155}),
        ({"rule": "range", "printed": [1.2, 1.3], "step": 0.01}, {"at_least": 1.195, "at_most": 1.305}),
        ({"rule": "rounding", "printed": [0.43, 0.41], "step": 0.01}, {"at_least": 0.01, "at_most": 0.03}),
        ({"rule": "direction", "printed": 1}, {"above": 1}),
        ({"rule": "more than", "printed": 0.9}, {"at_least": 0.9}),
        ({"rule": "reproduced", "over": "published"}, {"at_least": 0.9, "at_most": 1.1}),
        ({"rule": "rounding", "over": "published"}, {"at_least": 1, "at_most": 1}),
        ({"rule": "direction", "below": 1}, {"below": 1}),
        ({"at_least": 3}, {"at_least": 3}),
    ],
)
def test_bounds_follow_from_the_rule(entry, expected):
    assert bounds_of(entry) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({}, "the claim has no bound"),
        ({"rule": "counted", "printed": 3}, "printed = 3 with rule = 'counted'; needs a rule that gives bounds"),
        ({"rule": "about", "printed": 3, "at_most": 9}, "printed = 3 with rule = 'about'"),
        ({"rule": "abuot"}, "rule = 'abuot'; did you mean 'about'"),
        ({"at_least": "3"}, "needs a number"),
    ],
)
def test_bounds_that_do_not_follow(entry, says):
    with pytest.raises(ValueError, match=says):
        bounds_of(entry)

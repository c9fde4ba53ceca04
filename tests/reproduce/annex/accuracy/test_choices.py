"""What taking our first layout would have lost over public sweeps: far less than a blind choice."""

from statistics import fmean

import pytest

from reproduce.annex.accuracy.first_choices import sweeps, table
from reproduce.annex.accuracy.ledger import studies


@pytest.mark.slow
def test_of_public_sweeps_our_first_is_mostly_the_best():
    lines = sweeps()
    assert len(lines) >= 30
    assert all(1 <= line["rank"] <= line["layouts"] and line["loss"] >= 0 for line in lines)
    assert all((line["rank"] == 1) <= (line["loss"] == 0) for line in lines)
    assert fmean(line["loss"] for line in lines) < fmean(line["chance"] for line in lines) / 2
    *parts, whole = table(lines).rows
    assert whole["sweeps"] == len(lines) == sum(part["sweeps"] for part in parts)
    measured = {study.id for study in studies() if not study.again}
    assert {part["study"] for part in parts} <= measured

"""Which numbers of a cluster were set with which artifacts' published values: what the cluster's file says of each."""

import re
from functools import cache


def artifacts_in(text: str) -> set[str]:
    """The artifacts that a `set_with` names. One marked '(text only ...)' gave words, not values."""
    return set(re.findall(r"\b(?:fig|table)_\w+", re.sub(r"\w+ \(text only[^)]*\)", "", text)))


@cache
def numbers_set_with(cluster: str, artifact: str) -> tuple[str, ...]:
    """The numbers of a cluster that were chosen, within a range, with the published values of an artifact."""
    from ptdp_core.simulator import read_parameters

    numbers = read_parameters(cluster).items()
    return tuple(name for name, n in numbers if n.low < n.high and artifact in artifacts_in(n.set_with))

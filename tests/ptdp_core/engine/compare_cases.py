"""Cases against their serial references, in a process of its own: `python -m ... '[[case, path], ...]'` prints JSON.

Whether Triton interprets its kernels is settled when a process first imports them.
"""

import json
import sys
from typing import Any

from ptdp_core.launch.local import launch
from tests.ptdp_core.engine import jobs

Result = list[list[dict[str, float]]]


def compare(work: list[tuple[dict[str, Any], str]]) -> Result:
    """The largest relative errors of each case on each of its ranks."""
    differences = []
    for case, path in work:
        ranks = case.get("p", 1) * case.get("t", 1) * case.get("d", 1)
        args = ([(case, path)],)
        differences.append([r[0] for r in launch(jobs.compare_all, ranks, args, timeout=300, process_group=ranks > 1)])
    return differences


if __name__ == "__main__":
    print(json.dumps(compare(json.loads(sys.argv[1]))))

"""Section `planner`: what a search for the best configuration looks at, and the calls that this takes.

Three jobs, on so many GPUs that a second is enough: a dense model on two numbers of GPUs, and one with experts. The
search runs in a process of its own, in Python alone, so that nothing depends on what is in its caches, nor on whether
the simulator's inner loops were compiled.
"""

from typing import Any

from reproduce.annex.exact import probes
from reproduce.annex.exact.entries import Entry, Section
from results import ROOT

# Counted are the calls of functions below these folders.
COUNTED = ("ptdp_core/", "reproduce/planning/")

PROBE = """
import collections, json, sys
from ptdp_core.config import ModelConfig
from ptdp_core.simulator import load_cluster
from reproduce.annex.exact import watched
from reproduce.planning.search import TrainingJob, search
DENSE = ModelConfig(8, 2048, 16, seq=1024)
MIXTURE = ModelConfig(8, 2048, 16, kv_heads=8, seq=8192, experts=4, experts_per_token=2, bias=False)
JOBS = {
    "8 GPUs": TrainingJob(DENSE, 8, 8),
    "16 GPUs": TrainingJob(DENSE, 16, 16),
    "8 GPUs, experts": TrainingJob(MIXTURE, 8, 16),
}
counted, found = tuple(json.loads(sys.argv[1])), {}
for name, job in JOBS.items():
    calls = collections.defaultdict(collections.Counter)
    def count(frame, event, argument):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(counted) and not code.co_name.startswith("<"):
            module, _, function = watched.name(frame).partition(".")
            calls[module][function] += 1
    with watched.calling(count):
        result = search(job, load_cluster("selene"))
    looked = {what: getattr(result, what) for what in ("legal", "too_large", "too_long", "discarded")}
    found[name] = looked | {"simulated": len(result.ranked)}, calls
print(json.dumps(found))
"""


def collect() -> Section:
    """Search for each job, and return what was looked at."""
    return probes.ask("search", PROBE, [f"{ROOT / folder}/" for folder in COUNTED], _section, PTDP_NATIVE="0")


def _section(printed: Any) -> Section:
    return {
        name: Entry(
            {
                "work": {f"{what} of search.search": count for what, count in looked.items()},
                "calls": {
                    module: ", ".join(f"{count} {function}" for function, count in sorted(functions.items()))
                    for module, functions in sorted(calls.items())
                },
            }
        )
        for name, (looked, calls) in printed.items()
    }

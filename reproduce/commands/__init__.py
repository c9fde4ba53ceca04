"""The subcommands of `reproduce`, each a module with `add_arguments(parser)`, `run(parsed)`, perhaps `HELP`, `FIELDS`.

A command of two words, such as `gate exact`, is in a module `..._gate_exact`. `HELP` is printed after the options;
`FIELDS` are those that the command takes as key=value, or with `--set`. `run` returns an exit code of
`results.records.errors`; besides what was parsed it finds `parsed.program`, how this program was started,
`parsed.command`, the whole command line as records keep it, and `parsed.quiet`. Importing a module is quick: whatever
takes long to import is imported in `run`. `run.py` is the command without a name: `reproduce ID [ID ...]`. `options.py`
has what several commands share.
"""

from importlib import import_module
from types import ModuleType

from reproduce.annex import part

GROUPS = {
    "reproduce": {
        "list": "the papers' figures and tables that can be reproduced",
        "describe": "what an artifact shows, its points, the claims it judges",
        "verify": "every claim of the papers, with its verdict",
        "report": "all results as one HTML page",
        "plot": "figures of artifacts and benchmarks again, from records alone",
        "paper": "a paper of your own, from a CSV file of measurements",
    },
    "ask": {
        "simulate": "what training configurations of your own would take",
        "plan": "how to train a model on n GPUs",
        "schedule": "pipeline schedules compared, drawn, checked, searched for",
        "explain": "why a measured iteration is slow; explain trace: a profiled step",
        "explore": "the simulator as a page in your browser",
    },
    "train": {
        "train": "train a model with the engine, here or on a cluster",
        "weights": "a model's weights from and to Hugging Face's format",
    },
    "measure": {
        "doctor": "what this machine can do, what is missing, how to get it",
        "bench": "microbenchmarks; bench gpu: all that one GPU should verify",
        "calibrate": "this machine as a cluster to predict with",
    },
    "guard": {
        "gate": "is a commit slower? gate exact: did a number change?",
        "compare": "two result sets: what differs, and whether they can be compared",
        "accuracy": "the simulator against every published value",
        "predict": "seal predictions of public runs, for others to score",
    },
}
# Parts of a command, in the help of the one that they begin with.
PARTS = {
    "explain trace": "a profiled training step: bubble, exposed communication, time by phase, beside the simulated",
    "gate trials": "the gate tried on identical and on slowed code: how often it is wrong, or does not decide",
    "gate exact": "compare all that is deterministic with the committed reference",
}
COMMANDS = {name: text for group in (*GROUPS.values(), PARTS) for name, text in group.items()}
# What the help of a command without examples of its own shows.
EXAMPLES = {
    "list": "list --paper llama3",
    "describe": "describe fig_interleaved",
    "verify": "verify fig_interleaved --expected",
    "report": "report --out report.html",
    "plot": "plot fig_interleaved --for acm",
    "paper": "paper zpp asked/zeropp.csv",
    "train": "train --recipe tiny --set p=2 --set t=2 --ranks 4",
    "doctor": "doctor",
    "bench": "bench run gemm --quick",
    "gate": "gate --base HEAD~1 --budget 90s",
    "gate exact": "gate exact schedules",
    "accuracy": "accuracy --ledger",
}
# The annex that has a command, as a module `command_NAME`; the others' modules are here.
IN_ANNEX = {
    "accuracy": "accuracy",
    "bench": "bench",
    "calibrate": "calibrate",
    "compare": "compare",
    "doctor": "doctor",
    "explain": "explain",
    "explain trace": "explain",
    "explore": "page",
    "gate": "gate",
    "gate exact": "exact",
    "gate trials": "gate",
    "paper": "papers",
    "plan": "plan",
    "plot": "plot",
    "predict": "accuracy",
    "report": "report",
    "schedule": "schedules",
    "weights": "weights",
}
# What is no longer here, for one release (docs/upgrading.md), and what does it now.
GONE = {
    "check": "reproduce gate, the same command",
    "data": "reproduce train --data FOLDER, which reads text files as they are",
    "site": "reproduce explore --out DIR, which writes the page",
    "generate": "sample with transformers from what reproduce weights export writes",
    "completion": "no command line is completed any more; reproduce --help lists all commands",
    "bench history": "asv (airspeed velocity) follows benchmarks over commits, by its own runs",
    "bench bisect": "git bisect run with reproduce gate, or asv find",
    "paper new": "reproduce paper NAME [FILE.csv], the same command",
    "schema": "reproduce COMMAND --schema, which prints what COMMAND reads, may be told and prints",
    "timeline": "reproduce schedule NAME, such as reproduce schedule 1f1b -p 4 -m 8",
    "trace": "reproduce explain trace, the same command",
}


def module_of(name: str) -> ModuleType:
    """The module of a command; '' is the command without a name, which runs artifacts."""
    if name in IN_ANNEX:
        return part(IN_ANNEX[name], f"command_{name.replace(' ', '_')}")
    return import_module(f"reproduce.commands.{name.replace(' ', '_') or 'run'}")

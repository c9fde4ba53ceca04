"""The subcommands of `reproduce`, each a module with `add_arguments(parser)`, `run(parsed)` and perhaps `HELP`.

A command of two words, such as `gate exact`, is in the module `gate_exact`. `HELP` is printed after the
options. `run` returns an exit code of `results.records.errors`; besides what was parsed it finds `parsed.program`, how
this program was started, `parsed.command`, the whole command line as records keep it, and `parsed.quiet`. Importing a
module is quick: whatever takes long to import is imported in `run`. `run.py` is the command without a name: `reproduce
ID [ID ...]`. `options.py` has what several commands share.
"""

from importlib import import_module
from types import ModuleType

from reproduce.annex import part

GROUPS = {
    "the paper": {
        "list": "list the artifacts: the paper's figures and tables that can be reproduced",
        "describe": "what an artifact shows, its points, the claims it judges",
        "all": "run every artifact, and answer whether the paper holds",
        "verify": "every claim of the paper, with its verdict",
        "report": "all results as one HTML page",
        "explore": "the simulator as a page in your browser, or as files for any server",
        "plot": "draw figures again, of artifacts and of benchmarks, from their records alone",
        "paper new": "a paper of your own, from a CSV file of measurements: tables, figures, verdicts, a report",
        "compare": "two result sets: what differs, and whether they can be compared",
    },
    "your own configurations": {
        "simulate": "what-if: estimate training configurations of your own",
        "predict": "seal predictions of public training runs, for others to score",
        "explain": "why a measured iteration is slower than simulated, or than another run: causes, best first",
        "trace": "a profiled training step: bubble, exposed communication, time by phase, beside the simulated ones",
        "plan": "how to train a model on n GPUs: the paper's takeaways, and the best by simulation",
        "timeline": "draw and export a pipeline schedule of any size",
        "schedule": "pipeline schedules compared; one of your own checked, simulated, trained; a search for one",
        "train": "train a GPT model with the engine, on this machine or a cluster",
        "weights": "export a checkpoint's weights for Hugging Face's transformers, or import such weights to train on",
    },
    "this machine": {
        "doctor": "what this machine can do, what is missing, and how to get it",
        "calibrate": "measure this machine, as a cluster to predict with",
        "bench": "microbenchmarks: list and run; gpu: all that one GPU should verify",
    },
    "how far to trust it": {
        "accuracy": "the simulator against every published value, and how much each of its numbers matters",
        "gate": "the performance-regression gate: is a commit slower than another one?",
        "gate trials": "the gate tried on identical and on slowed code: how often it is wrong, or does not decide",
        "gate exact": "compare all that is deterministic with the committed reference",
    },
    "this command line": {
        "schema": "JSON Schemas of what a command reads, of its options, and of what it prints",
    },
}
COMMANDS = {name: text for group in GROUPS.values() for name, text in group.items()}
# The annex that has a command, as a module `command_NAME`; the others' modules are here.
IN_ANNEX = {
    "accuracy": "accuracy",
    "calibrate": "calibrate",
    "explain": "explain",
    "explore": "page",
    "predict": "accuracy",
    "trace": "explain",
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
}


def module_of(name: str) -> ModuleType:
    """The module of a command; '' is the command without a name, which runs artifacts."""
    if name in IN_ANNEX:
        return part(IN_ANNEX[name], f"command_{name}")
    return import_module(f"reproduce.commands.{name.replace(' ', '_') or 'run'}")

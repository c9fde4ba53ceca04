"""The subcommands of `reproduce`, each a module of its name with `HELP`, `add_arguments(parser)` and `run(parsed)`.

`HELP` is printed between the options and the exit codes. `run` returns the exit code; besides what was parsed it finds
`parsed.program`, how this program was started, and `parsed.command`, the whole command line as records keep it.
Importing a module is quick: whatever takes long to import is imported in `run`. `run.py` is the command without a name:
`reproduce ID [ID ...]`. `options.py` has what several commands share.
"""

COMMANDS = {
    "list": "list the artifacts: the paper's figures and tables that can be reproduced",
    "describe": "what an artifact shows, its points, the claims it judges",
    "all": "run every artifact",
    "simulate": "what-if: estimate training configurations of your own",
    "timeline": "draw and export a pipeline schedule of any size",
    "plan": "how to train a model on n GPUs: the paper's takeaways, and the best by simulation",
    "plot": "draw figures again, of artifacts and of benchmarks, from their records alone",
    "report": "all results as one HTML page",
    "compare": "two result sets: what differs, and whether they can be compared",
    "check": "the performance-regression gate: is a commit slower than another one?",
    "verify": "every claim of the paper, with its verdict",
    "doctor": "what this machine can do, what is missing, and how to get it",
    "calibrate": "measure this machine, as a cluster to predict with",
    "accuracy": "the simulator against every published value, and what its numbers matter",
}

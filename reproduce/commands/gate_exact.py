"""`reproduce gate exact`: everything deterministic against the committed reference, as `python -m benchmarks exact`."""

from benchmarks.exact.command import HELP, MEANINGS, add_arguments, run

__all__ = ["HELP", "MEANINGS", "add_arguments", "run"]

"""Exit codes and errors of the command line: those of `benchmarks.errors`, which stands below both."""

from benchmarks.errors import *  # noqa: F403

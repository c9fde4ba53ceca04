"""Timing, and running one benchmark.

    timing      warm-up, synchronised devices, all samples kept, a canary
    registry    the benchmarks there are; `benchmarks/suite/` has one module each
    runner      runs one: its points (`points`, `setup`) between two canaries, as a record; `table` prints it
    ranks       benchmarks of several ranks; `training`: the engine ready to be timed; `step_time`: a training step
    launchers   measured training runs (`job`, `worker`) here, under torchrun or Slurm
    command     what command lines share: a parser with errors of one line, exit codes in place of tracebacks

Importing any of these loads neither torch nor numpy nor jsonschema, except for `ranks`, `training` and `step_time`.
"""

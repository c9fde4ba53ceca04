"""Times code, runs one benchmark, and starts its ranks.

    timing      timers with warm-up that wait for the device and keep all samples; the canary
    registry    the list of benchmarks; `benchmarks/suite/` has a module for each
    runner      runs a benchmark between two canaries and makes a record of its points
    points      makes points from samples; `setup` is what a benchmark is told; `table` prints a record
    ranks       runs benchmarks of several ranks; `training` builds the engine for them; `step_time` times its steps
    launchers   starts measured training runs on this machine, under torchrun or Slurm

Importing any of these loads neither torch nor numpy nor jsonschema, except for `ranks`, `training` and `step_time`.
"""

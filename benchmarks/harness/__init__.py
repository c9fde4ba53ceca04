"""Times code, and starts the ranks of what is measured.

    timing          timers with warm-up that wait for the device and keep all samples; the canary
    benchmark_list  the list of benchmarks; `reproduce/annex/bench/` has a module for each
    points          makes points from samples; `device_setup` is what a benchmark is told
    ranks           runs benchmarks of several ranks; `training` builds the engine for them; `step_time` times its steps
    launchers       starts measured training runs on this machine, as `elastic` (torchrun) and `srun` (Slurm) do

Importing any of these loads neither torch nor numpy nor jsonschema, except for `ranks`, `training` and `step_time`.
"""

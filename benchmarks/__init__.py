"""What measures and what is kept: microbenchmarks, timing, and the records that every result is written to.

    records       the types of one result file (`Record` and its parts), writing and reading it
    validation    the check against `results/schema/`, with one line that says what is wrong and where
    storage       files written whole or not at all; digests of files and of configurations
    provenance    what a record says about the commit, the machine and the command that made it
    timing        the harness: warm-up, synchronised devices, all samples kept, a canary
    registry      the benchmarks there are; `suite/` has one module each
    runner        runs one: its points (`points`, `setup`) between two canaries, as a record; `table` prints it
    ranks         benchmarks of several ranks; `training`: the engine ready to be timed
    launchers     measured training runs (`job`, `worker`, `step_time`, `fused_step`) here, under torchrun or Slurm
    exact/        everything deterministic, compared with the committed reference at zero tolerance
    gate/         the paired timing gate behind `reproduce check`
    command       what command lines share; `errors`: exit codes

Depends on `ptdp_core` and `kernels`; `reproduce` stands on it. Importing any of these loads neither torch nor numpy nor
jsonschema, except for `ranks`, `training` and `suite`.
"""

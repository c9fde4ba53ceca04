"""Starts ranks, and has the training program.

    local          ranks on this machine from one command, ended together
    command_line   the command `ptdp-train`, which is `reproduce train`, too
    preflight      what can be found wrong with a run before its ranks start
    rank_run       a run as each of its ranks runs it
    training_log   the log of a training run
    outcome        what became of a run
    defaults       what 'auto' means on a device
    recipes        named, complete configurations
    slurm          batch scripts for a cluster

It is built on the engine, which does not import it.
"""

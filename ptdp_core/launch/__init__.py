"""Starts ranks, and has the training program.

    local     ranks on this machine from one command, ended together
    train     the command `ptdp-train`, which is `reproduce train`, too
    training  a run as each of its ranks runs it
    defaults  what 'auto' means on a device
    recipes   named, complete configurations
    slurm     batch scripts for a cluster

It is built on the engine, which does not import it.
"""

"""Starts ranks, and has the training program.

    local               ranks on this machine from one command, ended together
    train               the command `ptdp-train`, which is `reproduce train`, too
    preflight           what can be found wrong with a run before its ranks start
    training            a run as each of its ranks runs it
    defaults            what 'auto' means on a device
    recipes             named, complete configurations
    slurm               batch scripts for a cluster
    schedule_gradients  every schedule's gradients against those of 1F1B

It is built on the engine, which does not import it.
"""

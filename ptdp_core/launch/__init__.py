"""What starts ranks, and the training program.

    local     ranks on this machine from one command, ended together
    train     the command `ptdp-train`
    training  a run as each of its ranks runs it
    recipes   named, complete configurations
    slurm     batch scripts for a cluster

Stands on the engine, which knows nothing of it.
"""

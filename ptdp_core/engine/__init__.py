"""The PTD-P engine: trains GPT models with pipeline, tensor and data parallelism, in strict optimizer semantics.

    settings              a complete configuration: TOML, overrides
    report                the log of a training run
    groups                process groups of p*t*d ranks, axes pp, dp, tp
    parameters, streams   values and dropout masks that do not depend on the layout
    tensor_parallel       f and g, split linears, embedding and loss (Section 2.3)
    weight_gradients      linears whose weight gradients come later, for zero-bubble schedules
    model, recompute      GPT in chunks of layers; activation recomputation (Section 3.5)
    p2p, pipeline         messages between stages; one executor for every schedule (Sections 2.2, 4.1)
    gradients, optimizer  main-gradient buffer and its reduction; AdamW, loss scaling, ZeRO-1
    trainer               one training step: the parts put together
    checkpoint, pieces    checkpoints by global name, as rectangles of global tensors
    data                  token files and a resumable order of samples
    zero3                 the FSDP2 baseline (Section 5.2)

Stands on `ptdp_core.config`, `formulas` and `schedules`, and on `kernels`; not on the simulator.
"""

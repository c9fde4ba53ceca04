"""The PTD-P engine: trains GPTs with pipeline, tensor, context and data parallelism, in strict optimizer semantics.

    settings, settings_file the configuration of a training run; TOML, overrides
    groups                  process groups along the axes pp, dp, cp and tp of the rank grid
    parameters              the parts of parameters that a rank holds, with values that do not depend on the layout
    rng_tracker             dropout masks that do not depend on the layout
    tensor_parallel         f and g, split linears, embedding and loss (Section 2.3)
    context, ring_attention what attention exchanges between the context ranks that share a sequence
    experts                 mixtures of experts: router, exchange of tokens, grouped products
    weight_gradients        linears' weight gradients: deferred for zero-bubble schedules, added up inside the GEMM
    model, recompute        GPT in chunks of layers; activation recomputation (Section 3.5)
    p2p                     messages between stages (Section 4.1)
    clock                   when a CPU or a GPU does things, for timelines
    pipeline                one executor for every schedule (Section 2.2), and of its forward passes alone
    param_and_grad_buffer   flat parameters and main gradients, and their reduction
    adamw, optimizer        AdamW on a rank's tensors; the gradient norm, loss scaling, ZeRO-1
    trainer                 one training step: the parts put together
    checkpoint/             checkpoints by global name; `tensors` has a rank's parts of them, as rectangles
    data                    token files and a resumable order of samples
    zero3                   the FSDP2 baseline (Section 5.2)

Stands on `ptdp_core.config`, `formulas`, `layout` and `schedules`, and on `kernels`; not on the simulator.
"""

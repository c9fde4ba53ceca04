"""Checkpoints: `checkpoints` saves and loads them; their `folder`, `state`, `shards` with the index, and `tensors`."""

"""How far the simulator is from the paper: `reproduce accuracy`."""

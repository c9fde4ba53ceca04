"""The page that runs the simulator in a browser: `bridge` answers it, `build` writes its files, `timing` times it."""

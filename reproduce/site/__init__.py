"""The page that runs the simulator in a browser: `bridge` answers it there, `build` writes its files."""

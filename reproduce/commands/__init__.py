"""The subcommands of `reproduce`, one module each."""

"""One self-contained HTML page of all results: `reproduce report`."""

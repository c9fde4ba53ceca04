"""A Record shown: tables, figures, timelines, traces, HTML, the terminal."""

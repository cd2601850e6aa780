"""Experiments: which cells to run and what to make of them. They stand above the report and below the command line."""

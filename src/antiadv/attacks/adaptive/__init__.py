"""Attacks that have the defence itself, and use its base network or a surrogate of it."""

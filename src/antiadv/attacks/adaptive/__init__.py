"""Attacks by someone who has the defence itself, and takes it apart."""

"""Attacks that need only the predicted label."""

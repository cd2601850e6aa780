"""Attacks that need the predicted label and no more."""

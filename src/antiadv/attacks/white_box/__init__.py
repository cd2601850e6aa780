"""Attacks that need gradients of the classifier as it is served, defence included."""

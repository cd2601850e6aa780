"""Attacks that need the scores of the classifier, and no gradients."""

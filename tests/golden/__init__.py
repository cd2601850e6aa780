"""Recorded results of every attack and defence, so that no change of results goes unnoticed."""

"""The vocabulary: what an attack may ask, where it may go, what it may spend. Imports nothing of ours."""

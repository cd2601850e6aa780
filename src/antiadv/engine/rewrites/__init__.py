"""Rewrites of a network: the same function in another form that a device runs faster.

Each file says when its rewrite applies, what it does and what it gains. A rewrite stays if it saves 5 % of AutoAttack's
time on a GPU, bare or through the layer. `docs/design/engine.md` has the measurements.
"""

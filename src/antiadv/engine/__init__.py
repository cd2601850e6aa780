"""How a request becomes passes: the fast engine, its precisions, and the copies of networks it runs.

fast.py          the engine: static batch sizes, CUDA graphs, compiled networks
cuda_graphs.py   one captured request
optimise.py      a copy of a network that suits its device
rewrites/        the same function in another form, one file each, with what it gains
precision.py     float32, tf32, half, mixed
meter.py         counts passes and seconds for the receipt

The protocol and the plain engine are in `core/engine.py`, because the oracle needs them.
"""

"""How a request becomes passes through a network.

fast.py          the fast engine: static batch sizes, CUDA graphs, copies of networks
cuda_graphs.py   one captured request, and the cache of them
optimise.py      a copy of a network that suits its device
half.py          what networks in 16 bits need
rewrites/        the same function in another form, one file each
precision.py     the names of the precisions
switches.py      settings of torch for the complete process, set and put back
meter.py         counts passes and seconds for the receipt

The protocol and the plain engine are in `core/engine.py`, because the oracle needs them. Private parts of torch are in
`core/torch_private.py`.
"""

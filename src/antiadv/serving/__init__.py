"""How a defended classifier leaves Python's training code: exported files, bundles, a server.

backend.py         one interface for what answers requests
torch_backend.py   PyTorch behind it: eager, or from CUDA graphs on a GPU
onnx_backend.py    ONNX Runtime behind it; pt2_backend.py: PyTorch's own formats
export.py          a classifier to a checked bundle; trace.py, gradients.py and check.py are its steps
bundle.py          a folder with a model file and its card, opened without running anything
source.py          what is served: a bundle, or a network and a defence by name
protocol.py        the Open Inference Protocol v2: JSON and binary
batcher.py         requests become batches, run by engine threads
request_handler.py from a valid request to its answer: budget, queue, counting, reload
app.py             the HTTP application: paths, bodies, keys, errors
serve.py           uvicorn and signals; on_ray.py: the same application on a Ray cluster
playground/        a page on this machine on which one image is attacked live
limits.py, keys.py, metrics.py, near_duplicates.py, logs.py
"""

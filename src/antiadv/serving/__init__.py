"""How a defended classifier leaves Python's training code: exported files, bundles, a server.

backend.py        one interface for what answers requests: eager PyTorch, an exported file
export.py         a classifier to a checked bundle; trace.py, gradients.py and check.py are its steps
bundle.py         a folder with a model file and its card, opened without running anything
onnx_backend.py   ONNX Runtime as a backend; pt2_backend.py: PyTorch's own formats
"""

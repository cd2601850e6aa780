"""How a defended classifier leaves Python's training code: exported files, bundles, a server.

backend.py   one interface for what answers requests: eager PyTorch, an exported file
"""

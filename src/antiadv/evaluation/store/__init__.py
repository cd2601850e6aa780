"""The store: a folder of small files that never change once written.

    root/<key>/cell.json                            describes the cell (`cell_file.py`)
    root/<key>/probe.json                           the network's scores for a few fixed images (`probe_file.py`)
    root/<key>/000000-000249-250.json.xz            250 records, samples 0 … 249 (`shard_file.py`)
    root/<key>/000000-000249-250.safetensors        the attacked images, on request

A file is complete or absent, because it is renamed into place after it is written. A truncated, edited, renamed or
foreign file is named and refused. Two writers of one cell write equal records under equal names. Where files overlap,
the first by name counts.
"""

from antiadv.evaluation.store.store import Store

__all__ = ["Store"]

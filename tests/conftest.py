"""One thread per process: the tensors here are small, and the suite runs a process per core (pytest-xdist)."""

from __future__ import annotations

import os

import torch

torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"  # for the processes that tests start

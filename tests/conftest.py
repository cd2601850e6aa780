"""One thread per process: the tensors here are small, and the suite runs a process per core (pytest-xdist)."""

from __future__ import annotations

import os
import signal

import torch

torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"  # for the processes that tests start

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # a shell in the background has it ignored; then so would the programs whose Ctrl-C is tested
    signal.signal(signal.SIGINT, signal.default_int_handler)

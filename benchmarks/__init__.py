"""Benchmarks: our code compared with other people's. Run them from the root of the repository.

    python -m benchmarks.parity     how strong our attacks are          -> results/parity, docs/parity.md
    python -m benchmarks.speed      how fast they are                   -> results/bench, docs/benchmarks.md
    python -m benchmarks.latency    what the layer costs a service
    python -m benchmarks.draws      what random numbers cost
    python -m benchmarks.store      what planning, storing and sending work cost   -> docs/scaling.md

`make bench` sets up an environment that has the other packages. Results are JSON files with the facts of every sample;
their verdicts are computed from these facts. `tools.docs` writes the pages.
"""

"""Evaluate into a store, continue later, and print the table. About 5 seconds on a CPU.

A cell is one run: a model, a defence, an attack, a threat and samples. The store keeps one record for each sample.
Samples that are already stored are not run again, so you can stop a long evaluation at any time and start it again.
"""

import tempfile

import antiadv


def cells(samples: range) -> list[antiadv.Cell]:
    """The same network without and with the layer, under the same attack."""
    return [
        antiadv.make_cell(
            model="compact:trades", defence=defence, attack="pgd:steps=5", threat="linf:8/255", samples=samples
        )
        for defence in ("none", "anti_adversary")
    ]


with tempfile.TemporaryDirectory() as folder:
    store = antiadv.Store(folder)
    antiadv.evaluate(cells(range(8)), store, shard=4)
    first = [store.done(cell) for cell in cells(range(8))]

    # ask for 12 samples: only samples 8 to 11 are attacked now
    antiadv.evaluate(cells(range(12)), store, shard=4)
    new = [store.done(cell) - old for cell, old in zip(cells(range(12)), first, strict=True)]
    report = antiadv.report(store)

print(f"first run: samples {sorted(first[0])}")
print(f"second run: samples {sorted(new[0])}")
print(report)

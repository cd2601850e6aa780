"""The library works without the paper: nothing that it imports or runs loads `antiadv.paper`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CODE = """
import sys
import torch
import antiadv

sys.modules["antiadv.paper"] = None  # importing it, or a module of it, is an error from here on
net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3)).eval()
for name in antiadv.__all__:
    getattr(antiadv, name)
x = torch.rand(4, 3, 2, 2, generator=torch.Generator().manual_seed(0))
print(antiadv.attack(net, x, net(x).argmax(1), "pgd", antiadv.Linf(0.1)).robust_accuracy)
cell = antiadv.make_cell(model="compact:trades", attack="pgd:steps=2", threat="linf:8/255", samples=range(2))
antiadv.evaluate([cell], sys.argv[1])
report = antiadv.report(sys.argv[1])
assert len(report.rows) == 1
print(report)
assert not [name for name, module in sys.modules.items() if name.startswith("antiadv.paper") and module is not None]
"""


def test_evaluating_and_reporting_import_no_module_of_the_paper(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", CODE, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "compact:trades" in done.stdout

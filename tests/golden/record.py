"""`python -m tests.golden.record`: run every case and write `golden.json`.

It refuses to record other results for an edition that is recorded already. To begin again, delete the file.
"""

from __future__ import annotations

import json
import sys

from tests.golden.cases import CASES, FILE, complaint, load


def main() -> None:
    recorded, results = load(), {case.name: case.run() for case in CASES}
    refused = [
        message
        for name, result in results.items()
        if name in recorded and recorded[name]["edition"] == result["edition"]
        if (message := complaint(name, recorded[name], result))
    ]
    if refused:
        sys.exit("\n".join(refused))
    lines = [f"  {json.dumps(name)}: {json.dumps(result)}" for name, result in sorted(results.items())]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    sys.stdout.write(f"{len(results)} golden records in {FILE.name}\n")


if __name__ == "__main__":
    main()

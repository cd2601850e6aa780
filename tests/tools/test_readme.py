"""tools/docs/readme: the short table of the README is a part of the headline."""

from __future__ import annotations

from tools.docs.readme import NETWORKS, short

HEADLINE = """\
| network | n |
| --- | --- |
| `compact:trades` | 7 |
| `compact:hydra` | 8 |
| `compact:awp,data=cifar100` | 9 |

Something else. Searched in tf32 (39) and half (51), judged in float32.
"""


def test_only_chosen_networks_are_shown_and_the_precisions_are_named() -> None:
    *rows, blank, _, last = short(HEADLINE).splitlines()
    assert rows == [
        "| network | n |", "| --- | --- |", "| `compact:trades` | 7 |", "| `compact:awp,data=cifar100` | 9 |"
    ]  # fmt: skip
    assert blank == ""
    assert "tf32 or half" in last
    assert len(NETWORKS) == 5


def test_a_headline_without_a_table_stays_as_it_is() -> None:
    assert short("Nothing is stored yet.\n") == "Nothing is stored yet.\n"

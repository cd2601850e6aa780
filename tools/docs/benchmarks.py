"""docs/benchmarks.md: how fast our attacks are compared with other people's code, from `results/bench`."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any  # what a JSON file holds

from antiadv import attacks
from benchmarks.defaults import JOBS as DEFAULTS
from benchmarks.defaults import POINTS
from benchmarks.speed.files import stored
from benchmarks.speed.jobs import RACES, ROBUST
from benchmarks.speed.verdict import met
from tools.docs.markdown import (
    current_command,
    median_and_range,
    not_run_yet,
    render,
    render_wrapped,
    table,
    wrap,
    yes_or_no,
)
from tools.docs.parity import distance_and_limit

KINDS = {"cuda": "GPU", "cpu": "CPU"}
BESIDE = "model", "weights", "images", "precision", "threads", "seconds", "repeats", "spins"
ALONE = ("overhead", "ceiling")  # kinds of jobs that measure ours alone

Facts = dict[str, Any]


def page(root: Path) -> str:
    folder = root / "results" / "bench"
    found = stored(folder)
    latency, beside = (_read(folder / f"{name}.json") for name in ("latency", "side-by-side-cpu"))
    races = [facts for facts in found if facts["kind"] not in ALONE]
    ceilings = [ceiling_section(facts) for facts in found if facts["kind"] == "ceiling"]
    overheads = [overhead_section(facts) for facts in found if facts["kind"] == "overhead"]
    defaults = [json.loads(path.read_text()) for path in sorted(folder.glob("defaults-*.json"))]
    sections = [
        "\n".join(["## Without any option\n", defaults_section(defaults)]),
        race_section("On a GPU", "cuda", races),
        race_section("On a CPU", "cpu", races),
        "\n".join(["## How much faster a CPU could be\n", *(ceilings or not_run_yet(["ceiling"]))]),
        "\n".join(["## The layer's latency\n", latency_section(latency)]),
        "\n".join(["## The engine's own overhead\n", *(overheads or not_run_yet(["overhead"]))]),
        "\n".join(["## Two commands at once\n", beside_section(beside)]),
    ]
    due = {name: race.queries for name, race in RACES.items()}
    return render(
        "benchmarks",
        robust=network_name(ROBUST),
        summary=defaults_met(defaults) + targets_met(found, latency) + fewer_queries(found, due),
        fastest=fastest_table(races),
        sections="\n".join(sections),
        commands="\n".join(commands([*found, *defaults], latency)) or "None is stored.",
    )


def _read(path: Path) -> Facts | None:
    return json.loads(path.read_text()) if path.exists() else None


def commands(found: Sequence[Facts], latency: Facts | None) -> Iterable[str]:
    for facts in found:
        yield f"- `{current_command(facts['command'])}`"
    if latency is not None:
        yield f"- `python -m benchmarks.speed --jobs latency --device cuda --precision {latency['precision']}`"


def network_name(model: str) -> str:
    """Return the name of a network of the zoo, or the stem of another network's file."""
    return Path(model).stem if model.endswith(".safetensors") else model


def raced_network(facts: Facts) -> str:
    """Return the network of a race. One that does not come with the project is named with the digest of its weights."""
    name = network_name(facts["model"])
    return name if name == facts["model"] else f"{name} ({facts['weights'].removeprefix('sha256:')[:8]})"


# ---------------------------------------------------------------- which targets are met


def targets_met(found: Sequence[Facts], latency: Facts | None) -> str:
    """Say how many targets are met, which need an option for it, and which are not met."""
    verdicts = verdict_by_job(found)
    if latency is not None:
        verdicts[f"`latency` ({latency['device']}, {latency['precision']})"] = latency["verdict"]
    met_by = {name: [side for side, row in v.get("sides", {}).items() if row["met"]] for name, v in verdicts.items()}
    missed = [name for name, verdict in verdicts.items() if not verdict["met"]]
    with_option = [
        f"{name}: {' and '.join(met_by[name])}"
        for name, verdict in verdicts.items()
        if verdict["met"] and "ours" in verdict.get("sides", {}) and "ours" not in met_by[name]
    ]
    text = f"**{len(verdicts) - len(missed)} of {len(verdicts)} stored jobs meet their target.**\n"
    for what, names in (("These meet it only with an option:", with_option), ("These do not meet it:", missed)):
        text += f"\n{what}\n\n" + "".join(f"- {name}\n" for name in names) if names else ""
    return text


def verdict_by_job(found: Sequence[Facts]) -> dict[str, Facts]:
    """Return one verdict per job, device and precision. The sides of a job may be stored in several files."""
    verdicts: dict[str, Facts] = {}
    for facts in (facts for facts in found if facts["kind"] != "ceiling"):
        name = f"`{facts['job']}` ({facts['device']}, {facts['precision']})"
        verdict = facts["verdict"]
        if "sides" in verdict:
            sides = verdicts.get(name, {"sides": {}})["sides"] | verdict["sides"]
            verdict = {"sides": sides, "met": met(sides)}
        verdicts[name] = verdict
    return verdicts


def fewer_queries(found: Sequence[Facts], due: Mapping[str, int | None]) -> str:
    """Name the jobs that were only run with fewer queries than their target has (`due`, by job)."""
    seen: dict[str, set[int]] = {}
    for facts in found:
        if due.get(facts["job"]) is not None:
            seen.setdefault(facts["job"], set()).add(facts["queries"])
    short = {job: queries for job, queries in seen.items() if due[job] not in queries}
    if not short:
        return ""
    items = (f"- `{job}`: {due[job]:,} asked, {max(queries):,} run\n" for job, queries in short.items())
    return "\nThese were run with fewer queries than their target asks for:\n\n" + "".join(items)


# ---------------------------------------------------------------- the defaults


def defaults_section(found: Sequence[Facts]) -> str:
    """Return what a user gets who sets nothing, timed from the start of a process to its end."""
    rows = [row for facts in found for row in defaults_rows(facts)]
    text = [render_wrapped("benchmarks_defaults", points=f"{POINTS:g}"), table(rows)] if rows else []
    return "\n".join([*text, *not_run_yet(defaults_missing(found))])


def defaults_missing(found: Sequence[Facts]) -> list[str]:
    """Name the runs that have a target and are not stored: job, device and process."""
    run = {
        (facts["job"], "cpu" if facts["device"] == "cpu" else "cuda", name)
        for facts in found
        for name in facts["verdict"]
    }
    due = [(job.name, kind, name) for job in DEFAULTS.values() for kind in job.targets for name in ("first", "second")]
    return [f"{job} ({KINDS[kind]}, {name} process)" for job, kind, name in due if (job, kind, name) not in run]


def defaults_met(found: Sequence[Facts]) -> str:
    """Say how many runs without any option meet their target, of those that are stored."""
    rows = [row["met"] for facts in found for row in facts["verdict"].values()]
    if not rows:
        return ""
    missing = len(defaults_missing(found))
    text = f"**Without any option, {sum(rows)} of {len(rows)} stored runs meet their target**"
    text += f"; {missing} more with a target are not run yet" if missing else ""
    return wrap(f"{text} ([table](#without-any-option)). With the settings below:") + "\n\n"


def defaults_rows(facts: Facts) -> Iterable[dict[str, str]]:
    """Yield a row for the first and the second process."""
    other = facts["runs"].get("theirs", {})
    for run, row in facts["verdict"].items():
        ours = facts["runs"][run]
        yield {
            "job": f"`{facts['job']}`",
            "on": facts["device"],
            "network": raced_network(facts) + (f" with `{facts['layer']}`" if facts["layer"] else ""),
            "ours": f"`{facts['attack']}`",
            "process": run,
            "images": f"{facts['samples']:,}",
            "times faster": f"{row['times_faster']:.2f}",
            "target": f"{facts['targets'][run]:g}",
            "standing, ours / theirs": f"{ours['standing']} / {other['standing']}",
            "seconds, ours / theirs": f"{ours['seconds']:.1f} / {other['seconds']:.1f}",
            "target met": yes_or_no(row["met"]),
        }


# ---------------------------------------------------------------- races


def race_section(title: str, kind: str, races: Sequence[Facts]) -> str:
    """Return the races of one kind of device ("cuda" or "cpu"), and which of its jobs are not stored."""
    here = [facts for facts in races if (facts["device"] == "cpu") == (kind == "cpu")]
    names = [race.name for race in RACES.values() if race.target(kind) is not None]
    missing = [name for name in names if name not in {facts["job"] for facts in here}]
    where = sorted({f"{facts['device']}" + f", threads: {facts['threads']}" * (kind == "cpu") for facts in here})
    rows = [row for facts in here for row in race_rows(facts)]
    text = [f"Run on: {'; '.join(where)}.{other_programs(here)}\n", table(rows)] if rows else []
    return "\n".join([f"## {title}\n", *text, *not_run_yet(missing)])


def other_programs(found: Sequence[Facts]) -> str:
    """Say how much of the processors other programs used, where that is known."""
    taken = [facts["others"] for facts in found if facts.get("others") is not None]
    return f" Other programs used at most {100 * max(taken):.1f} % of the processors." if taken else ""


def race_rows(facts: Facts) -> Iterable[dict[str, str]]:
    """Yield a row for each side of ours."""
    budget = f", {facts['budget']:,} queries" if facts["budget"] else ""
    for side, row in facts["verdict"]["sides"].items():
        (check,) = row["checks"]
        option = {"ours": "", "compiled": ", compiled"}.get(side, f", compiled, {side}")
        if "ratio" in check:
            ours, theirs = (f"{check[who]:.3g}" for who in ("ours", "theirs"))
        else:
            ours, theirs = (f"{100 * check[who]['value']:.1f}" for who in ("ours", "theirs"))
        apart, allowed = distance_and_limit(check, facts["points"])
        passes = (f"{facts[who]['forwards']:,} + {facts[who]['backwards']:,}" for who in (side, "theirs"))
        cells = {
            "job": f"`{facts['job']}`",
            "network": raced_network(facts) + (f" with `{facts['layer']}`" if facts["layer"] else ""),
            "ours": f"`{facts[side]['attack']}`" + budget + option,
            "theirs": f"{facts['peer'].split()[0]} `{facts['theirs']['attack']}`",
            "samples": str(len(facts["ids"])),
            "times faster": median_over_runs(row["times_faster"], len(facts["times_faster"][side])),
            "target": "" if facts["target"] is None else f"{facts['target']:g}",
            "by ours": ours,
            "by theirs": theirs,
            "ours to theirs": apart,
            "allowed": allowed,
            "passes": " / ".join(passes),
            "once": f"{facts['setup'][side]:.2g}",
        }
        yield cells | time_columns(facts, side) | {"target met": yes_or_no(row["met"])}


def time_columns(facts: Facts, side: str) -> dict[str, str]:
    """Return precision and seconds for a GPU, the number of threads for a CPU."""
    if facts["seconds"] is None:
        return {"threads": str(facts["threads"])}
    medians = (f"{statistics.median(facts['seconds'][who]):.1f}" for who in (side, "theirs"))
    return {"precision": facts["precision"], "seconds": " / ".join(medians)}


def median_over_runs(spread: Mapping[str, float], runs: int) -> str:
    return median_and_range(spread) if runs > 1 else f"{spread['median']:.2f} (one run)"


# ---------------------------------------------------------------- the short table


def fastest_table(races: Sequence[Facts]) -> str:
    """Return the fastest setting of each race that asks for a speed-up. Settings as strong as asked go first."""
    best: dict[tuple[str, str], tuple[tuple[bool, float], dict[str, str]]] = {}
    for facts in (facts for facts in races if (facts["target"] or 0) > 1):
        for row, side in zip(race_rows(facts), facts["verdict"]["sides"].values(), strict=True):
            key, rank = (facts["job"], facts["device"]), (side["strong"], side["times_faster"]["median"])
            if rank > best.get(key, ((False, 0.0), {}))[0]:
                best[key] = rank, short_row(facts, row, side["strong"])
    return table([row for _, row in best.values()]) if best else "None is stored.\n"


def short_row(facts: Facts, row: dict[str, str], strong: bool) -> dict[str, str]:
    """Shorten a row of a race."""
    layer = ", with the layer" if facts["layer"] else ""
    unit = ("" if facts["kind"] == "distance" else " %") + ("" if strong else ", weaker than asked")
    queries = their_queries(facts)
    return {
        "ours": row["ours"],
        "theirs": facts["peer"].split()[0] + (f", {queries:,} queries" if queries else ""),
        "network": f"{raced_network(facts)}{layer}",
        "on": facts["device"] if facts["device"] != "cpu" else f"{facts['threads']} CPU threads",
        "images": row["samples"],
        "times as fast": row["times faster"],
        "reached, ours / theirs": f"{row['by ours']} / {row['by theirs']}{unit}",
    }


def their_queries(facts: Facts) -> int | None:
    """Return the queries per sample of theirs: its budget, or what it sent where sides are compared by distance."""
    if facts["kind"] == "distance":
        return round(int(facts["theirs"]["forwards"]) / sum(facts["right"]))
    budget: int | None = facts["queries"]
    return budget


# ---------------------------------------------------------------- jobs that measure ours alone


def ceiling_section(facts: Facts) -> str:
    """Say how much faster any code could run the network on a CPU, pass for pass."""
    rows = [
        {"the network": {"ours": "a copy laid out for the device"}.get(name, name), "share": median_and_range(row)}
        for name, row in facts["verdict"]["shares"].items()
    ]
    return render_wrapped(
        "benchmarks_ceiling",
        model=facts["model"],
        millions=facts["multiplications"] / 1e6,
        samples=facts["samples"],
        threads=facts["threads"],
        table=table(rows),
        most=facts["verdict"]["most"],
    )


def latency_section(found: Facts | None) -> str:
    if found is None:
        return "\n".join(not_run_yet(["latency"]))
    rows = [latency_row(batch, row, found["verdict"]["batches"][batch]) for batch, row in found["batches"].items()]
    return render_wrapped(
        "benchmarks_latency",
        steps=found["steps"],
        model=found["model"],
        precision=found["precision"],
        device=found["device"],
        forwards=2 * found["steps"] + 1,
        repeats=found["repeats"],
        table=table(rows),
    )


def latency_row(batch: str, row: Facts, verdict: Facts) -> dict[str, str]:
    return {
        "batch": batch,
        "times faster than the authors' structure": median_and_range(row["faster_than_authors"]),
        "target": f"{verdict['faster']:g}",
        "met": yes_or_no(verdict["fast"]),
        "times its floor": median_and_range(row["times_the_floor"]),
        "at most": f"{verdict['floor']:g}",
        "floor met": yes_or_no(verdict["near"]),
    } | {f"{side}, ms": f"{row['milliseconds'][side][1]:.2f}" for side in ("ours", "authors", "forward")}


def beside_section(found: Facts | None) -> str:
    if found is None:
        return not_run_yet(["benchmarks.side_by_side"])[0]
    rows = [{"processes": name, "times as many images": median_and_range(row)} for name, row in found["ratios"].items()]
    return render_wrapped("benchmarks_side_by_side", **{k: found[k] for k in BESIDE}, table=table(rows))


def overhead_section(facts: Facts) -> str:
    shares = facts["verdict"]["shares"]
    rows = [
        {
            "name": name,
            "outside the passes": median_and_range(share, 100),
            "met": yes_or_no(share["median"] < facts["target"]),
        }
        for name, share in shares.items()
    ]
    text = render_wrapped(
        "benchmarks_overhead",
        queries=facts["queries"],
        samples=facts["samples"],
        model=facts["model"],
        target=100 * facts["target"],
        met="met" if facts["verdict"]["met"] else "not met",
        table=table(rows),
    )
    return "\n".join([text, *not_run_yet([name for name in attacks.ATTACKS if name not in shares])])

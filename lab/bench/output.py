# SPDX-License-Identifier: GPL-2.0-only
"""The files that `make bench` leaves: JSON, a page, Markdown."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lab import results
from lab.bench import markdown, page
from lab.bench.compare import ablation, sweeps
from lab.bench.execute import fates_of
from lab.bench.published import beside
from lab.bench.table import Table, World
from lab.bench.variants import VARIANTS
from lab.bench.walks import by_program
from lab.paths import RESULTS
from lab.results import Gate


def _cell(table: Table, world: World, arm: str) -> dict[str, Any]:
    """What was measured of an arm in a row."""
    figures: dict[str, Any] = {}
    for metric in table.metrics(world):
        found, interval = table.figure(world, arm, metric), table.interval(world, arm, metric)
        figures[metric.key] = found and {
            "median": found.median,
            "min": found.least,
            "max": found.most,
            "interval": interval and [interval.low, interval.high],
        }
    runs = table.runs(world, arm)
    cut_short = sum(run.by_host for run in runs)
    cell = {"runs": len(runs), "cut_short": cut_short, "fates": fates_of(runs), **figures}
    if modelled := [run for run in table.modelled(world, arm) if run.tlb]:
        cell["walks_by_program"] = by_program(modelled)
        cell["modelled"] = len(modelled)
        cell["lost"] = max(run.tlb.lost for run in modelled if run.tlb)
    return cell


def collect(table: Table) -> dict[str, Any]:
    """{"worlds": {case/lru: {"title", "regret": {score: {arm: ...}}, "arms": {arm: {"runs", "fates",
    metric: {"median", "min", "max", "interval"}, "walks_by_program": {name: {"user", "kernel"}}, "modelled", "lost"}},
    "variants": {rule taken away or constant varied: as an arm}, "behind": [arm, ...], "tlb", "model"}},
    "rules": [...], "constants": [...], "published": [...]}; the last three in words, as the tables have them."""
    worlds: dict[str, Any] = {}
    for world in table.worlds:
        arms = {arm.key: _cell(table, world, arm.key) for arm in table.arms(world)}
        variants = {arm.key: _cell(table, world, arm.key) for arm in VARIANTS if table.runs(world, arm.key)}
        regret: dict[str, Any] = {}
        for score in world.case.scores:
            for arm in table.arms(world):
                one = table.regret(world, arm.key, score)
                regret.setdefault(score.key, {})[arm.key] = one and {
                    "value": one.value,
                    "interval": one.interval and [one.interval.low, one.interval.high],
                    "best_static": one.best,
                }
        worlds[world.key] = {"title": world.title, "regret": regret, "arms": arms, "variants": variants}
        worlds[world.key]["behind"] = table.behind(world)
        if table.tlb:
            model = table.tlb.of(world.case)
            worlds[world.key] |= {"tlb": table.tlb.line(world.case), "model": model and model.identity()}
    return {
        "worlds": worlds,
        "rules": _records(ablation(table)),
        "constants": [
            {"option": option, "world": world.key, "values": _records(rows)} for option, world, rows in sweeps(table)
        ],
        "published": [asdict(one) | {"agreement": one.agreement} for one in beside(table, "classic")],
    }


def _records(rows: Sequence[Sequence[str]]) -> list[dict[str, str]]:
    """Rows of a table under its head; the value that is the default has two asterisks on each side there."""
    return [dict(zip(rows[0], (field.strip("*") for field in row), strict=True)) for row in rows[1:]]


def write(name: str, table: Table, gates: Sequence[Gate], environment: dict[str, Any]) -> list[Path]:
    """Writes NAME.json, NAME.html and NAME.md to build/results; their paths."""
    paths = [results.write(name, environment, collect(table), gates)]
    for suffix, text in (
        ("html", page.render(table, gates, environment)),
        ("md", markdown.render(table, gates, environment)),
    ):
        path = RESULTS / f"{name}.{suffix}"
        temporary = path.with_suffix(f".{suffix}.tmp")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
        paths.append(path)
    return paths

# SPDX-License-Identifier: GPL-2.0-only
"""`make publish`: copies whole results of the suite and the demo from build/results to results/DATE."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.bench import judging, scenarios
from lab.bench.gates import judged_arms
from lab.bench.spec import Scale
from lab.demo import arrival
from lab.demo import main as demo
from lab.demo.cells import ARM, LIMITS
from lab.errors import Exit, LabError
from lab.kernel import stockbuild
from lab.paths import REPO, RESULTS

DEMOS = tuple(map(demo.name_of, (None, *stockbuild.NAMES)))
"""Results of the demo: on the kernel with the series, and on each stock one."""
FILES = {
    "bench": {"html": "report.html", "md": "tables.md"},
    **{name: {"html": f"{name}.html"} for name in DEMOS},
}
"""Name of a run -> ending of a file it left -> what the file is called once it is published."""
_USUAL = ("bench", "demo")
"""Published where none is named."""
PUBLISHED = REPO / "results"


def compact(value: Any, depth: int = 0) -> str:
    """JSON with one line for each figure: thousands of them stay readable, and differences of two files small."""
    if not isinstance(value, dict | list) or not any(_deep(one) for one in _items(value)):
        return json.dumps(value, allow_nan=False)
    pad, end = " " * (depth + 1), " " * depth
    if isinstance(value, list):
        return "[\n" + ",\n".join(pad + compact(one, depth + 1) for one in value) + f"\n{end}]"
    lines = (f"{pad}{json.dumps(name)}: {compact(one, depth + 1)}" for name, one in value.items())
    return "{\n" + ",\n".join(lines) + f"\n{end}}}"


def _items(value: dict[str, Any] | list[Any]) -> list[Any]:
    return [*value.values()] if isinstance(value, dict) else value


def _deep(value: Any) -> bool:
    """Does it hold anything that holds something?"""
    if isinstance(value, dict):
        return bool(value)
    return isinstance(value, list) and any(isinstance(one, dict | list) for one in value)


def objections(name: str, body: dict[str, Any]) -> list[str]:
    """Why a run cannot be published; empty if it can. A missed gate is a result like any other."""
    environment = body["environment"]
    found = []
    if environment.get("complete") is not True:
        found.append("some runs that were asked for are missing")
    if "smoke" in (environment.get("scale"), environment.get("workload")):
        found.append("it is of scale smoke, whose figures mean nothing")
    revision = environment.get("revision")
    if not revision or revision.endswith("-dirty"):
        found.append("its revision is not in the history: commit first, then measure")
    if name == "bench" and environment.get("scale") in list(Scale):
        wanted = {f"{case.name}/{lru}" for case in scenarios.cases(Scale(environment["scale"])) for lru in case.lrus}
        if lacking := sorted(wanted - set(body["metrics"]["worlds"])):
            found.append(f"it lacks {len(lacking)} of {len(wanted)} rows, {lacking[0]} for one")
        if unfit := _unfit(Scale(environment["scale"]), body["metrics"]["worlds"]):
            found.append(
                f"{len(unfit)} rows lack an arm, or have more or fewer runs than are fixed: {unfit[0]} for one"
            )
    if name in DEMOS:
        measured = body["metrics"]["cells"]
        wanted_cells = [
            *((limit, arm) for limit in LIMITS for arm in ARM),
            *((arrival.KEY, arm) for arm in arrival.ARMS),
        ]
        if lacking := [f"{limit}/{arm}" for limit, arm in wanted_cells if arm not in measured.get(limit, {})]:
            found.append(f"it lacks {', '.join(lacking)}")
    return found


def _unfit(scale: Scale, worlds: Mapping[str, Any]) -> list[str]:
    """Rows that lack an arm, or one of whose arms did not run as often as is fixed; those stopped at a deadline run
    once, those far behind may."""
    found = []
    for case in scenarios.cases(scale):
        wanted = {arm: 1 if arm in case.slow else judging.runs(case) for arm in judged_arms(case)}
        for key in (f"{case.name}/{lru}" for lru in case.lrus if f"{case.name}/{lru}" in worlds):
            arms, once = worlds[key]["arms"], worlds[key].get("behind", [])
            counts = {arm: arms.get(arm, {}).get("runs") for arm in wanted}
            odd = [arm for arm, runs in wanted.items() if counts[arm] not in (runs, 1 if arm in once else runs)]
            found += [key] if odd else []
    return found


def _how(name: str) -> str:
    """The command that makes the files of a run."""
    stock = dict(zip(DEMOS[1:], stockbuild.NAMES, strict=True)).get(name)
    return f"`make demo-stock KERNEL={stock}`" if stock else f"`make {name}`"


def publish(name: str, source: Path, target: Path) -> list[Path]:
    """Copies one run's files to `target`; their paths there. LabError, and nothing copied, if it is not whole."""
    files = {source / f"{name}.{ending}": target / called for ending, called in FILES[name].items()}
    record = source / f"{name}.json"
    for path in (record, *files):
        if not path.is_file():
            raise LabError(Exit.USAGE, f"{path} is missing; run {_how(name)} first")
    body = json.loads(record.read_text(encoding="utf-8"))
    if found := objections(name, body):
        raise LabError(Exit.TESTS, f"{record} cannot be published: {'; '.join(found)}")
    texts = {target / record.name: compact(body) + "\n"}
    texts |= {there: here.read_text(encoding="utf-8") for here, there in files.items()}
    target.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    return list(texts)


def main(names: Sequence[str], date: str | None, source: Path = RESULTS, target: Path = PUBLISHED) -> int:
    """Publishes the runs of these names under `date`, by default the day on which the first of them ended."""
    for name in names:
        if name not in FILES:
            raise LabError(Exit.USAGE, f"{name!r} is no run that can be published; there are: {', '.join(FILES)}")
    names = names or _USUAL
    if date is None:
        record = source / f"{names[0]}.json"
        if not record.is_file():
            raise LabError(Exit.USAGE, f"{record} is missing; run {_how(names[0])} first")
        date = str(json.loads(record.read_text(encoding="utf-8"))["when"])[:10]
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", date):
        raise LabError(Exit.USAGE, f"{date!r} is no date like 2026-11-22")
    for name in names:
        for path in publish(name, source, target / date):
            print(path)
    return Exit.OK

# SPDX-License-Identifier: GPL-2.0-only
"""Results files: one shape for every command, so that one reader serves all of them.

{"name", "when", "environment": {...}, "metrics": {...},
 "gates": [{"name", "value", "bound", "ok", "judged", "counts", "decided"}]}
"""

import json
import math
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lab import proc
from lab.paths import REPO, RESULTS


@dataclass(frozen=True)
class Gate:
    """A figure a run must reach: `value` as measured, `bound` as a reader would say it (">= 0.97")."""

    name: str
    value: float | int | str | None
    bound: str
    ok: bool
    judged: bool = True
    """False: what would decide could not be measured here, for a reason that is not the gate's; `value` says why."""
    counts: bool = True
    """False: it holds and could not have failed here, so it says nothing, and is no part of a total."""
    decided: bool = True
    """False: it was judged, and its interval has the bound inside. Neither held nor missed."""

    @property
    def missed(self) -> bool:
        """It was judged, and does not hold."""
        return self.judged and self.decided and not self.ok


def unjudged(name: str, bound: str, why: str) -> Gate:
    """A gate that these runs cannot decide."""
    return Gate(name, why, bound, False, judged=False)


def by_interval(name: str, value: float, low: float, high: float, bound: str) -> Gate:
    """A gate on a figure that lies between `low` and `high`: held only if all of that satisfies the bound, missed only
    if nothing of it does."""
    shown = f"{value:.3f} ({low:.3f} to {high:.3f})"
    edges = [gate("", edge, bound).ok for edge in (low, high)]
    return Gate(name, shown, bound, all(edges), decided=all(edges) or not any(edges))


_BOUND = re.compile(r"\s*(>=|<=|==|>|<)\s*(-?[0-9.]+)\s*")


def gate(name: str, value: float | None, bound: str) -> Gate:
    """Checks `value` against a bound like ">= 0.97"; a value that could not be measured (None, NaN) fails."""
    match = _BOUND.fullmatch(bound)
    if not match:
        raise ValueError(f"not a bound: {bound!r}")
    limit = float(match[2])
    if value is None or value != value:
        return Gate(name, None, bound, False)
    ok = {
        ">=": value >= limit,
        "<=": value <= limit,
        "==": value == limit,
        ">": value > limit,
        "<": value < limit,
    }[match[1]]
    return Gate(name, value, bound, ok)


def _output(*argv: str) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, cwd=REPO, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return "unknown"
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1] if match else "unknown"


def environment(kernel_release: str | None, qemu_mode: str, **more: str | int | float | None) -> dict[str, Any]:
    """What a reader needs to judge the figures: guest kernel, QEMU and its mode, host, tool versions, commit."""
    qemu = _output("qemu-system-x86_64", "--version").splitlines()
    # Of one source package with the server, which the lab takes from redis-tools under another name.
    redis = re.search(r"\d+\.\S+", _output("redis-cli", "--version"))
    system = re.search(r'^PRETTY_NAME="?([^"\n]+)', _read("/etc/os-release"), re.MULTILINE)
    values: dict[str, Any] = {
        "kernel": kernel_release,
        "qemu": qemu[0] if qemu else None,
        "qemu_mode": qemu_mode,
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "host": system[1] if system else None,
        "redis": redis[0] if redis else None,
        "revision": _output(*proc.GIT, "describe", "--always", "--dirty", "--tags") or None,
    }
    values.update(more)
    return values


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and math.isinf(value) else value


def write(
    name: str,
    environment: dict[str, Any],
    metrics: dict[str, Any],
    gates: Sequence[Gate],
    directory: Path = RESULTS,
) -> Path:
    """Writes `directory`/`name`.json whole or not at all, and returns its path. A ratio to nothing and the time of
    a run that was killed are null there: JSON has no infinity."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.json"
    body = {
        "name": name,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": environment,
        "metrics": metrics,
        "gates": [asdict(one) for one in gates],
    }
    temporary = path.with_suffix(f".json.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(_finite(body), indent=2, allow_nan=False) + "\n")
    temporary.replace(path)
    return path

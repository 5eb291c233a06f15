# SPDX-License-Identifier: GPL-2.0-only
"""Configuration fragments over tinyconfig, and the proof that every line of them took effect."""

import re
from collections.abc import Sequence
from pathlib import Path

from lab.errors import Exit, LabError
from lab.paths import KERNEL_DIR

DIRECTORY = KERNEL_DIR / "config"
FRAGMENT = DIRECTORY / "lab.config"
SERIES_FRAGMENTS = {"mthp": DIRECTORY / "series.config", "pud": DIRECTORY / "pud.config"}
"""Options that exist only with the series of that name applied."""

_SET = re.compile(r"(CONFIG_\w+)=(.*)")
_UNSET = re.compile(r"# (CONFIG_\w+) is not set")


def parse(text: str) -> dict[str, str]:
    """Symbol -> value ("n" for one that is not set); comments are skipped."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        if match := _SET.fullmatch(line.strip()):
            values[match[1]] = match[2]
        elif match := _UNSET.fullmatch(line.strip()):
            values[match[1]] = "n"
    return values


def has(text: str, option: str) -> bool:
    """Is CONFIG_`option` set in a kernel's configuration, to whatever but n?"""
    return parse(text).get(f"CONFIG_{option}", "n") != "n"


def fragments(series: Sequence[str]) -> list[Path]:
    """The fragments to merge for a kernel with these series, in order."""
    return [FRAGMENT, *(SERIES_FRAGMENTS[name] for name in series if name in SERIES_FRAGMENTS)]


def small(series: Sequence[str]) -> list[Path]:
    """What to merge over those where a build is to be short: no more than these series and their tests need."""
    names = ["small.config", *(["pud-small.config"] if tuple(series) == ("pud",) else [])]
    return [DIRECTORY / name for name in names]


def merge(paths: Sequence[Path]) -> dict[str, str]:
    """The values that the fragments ask for; a later one overrides an earlier one."""
    wanted: dict[str, str] = {}
    for path in paths:
        try:
            wanted |= parse(path.read_text())
        except OSError as error:
            raise LabError(Exit.CONFIG, f"cannot read {path}: {error.strerror}") from error
    return wanted


def missed(wanted: dict[str, str], config: str) -> list[str]:
    """What was asked for and is not so in `config`, one line each."""
    actual = parse(config)
    return [
        f"{name}={value}, but it is {actual.get(name, 'n')}"
        for name, value in sorted(wanted.items())
        if actual.get(name, "n") != value
    ]


def check(wanted: dict[str, str], config: str) -> None:
    """LabError with all of `missed`, if there are any."""
    if lines := missed(wanted, config):
        listed = "\n".join(f"  {line}" for line in lines)
        raise LabError(
            Exit.CONFIG,
            f"the kernel's configuration does not take these lines of kernel/config/:\n{listed}\n"
            "Likely a symbol was renamed in this base, or something it depends on is off.",
        )

# SPDX-License-Identifier: GPL-2.0-only
"""Configuration fragments over tinyconfig, and the proof that every line of them took effect."""

import re
from collections.abc import Mapping, Sequence
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


def added(series: Sequence[str]) -> dict[str, str]:
    """The options that these series add."""
    return merge(fragments(series)[1:])


def small(series: Sequence[str]) -> list[Path]:
    """What to merge over those where a build is to be short: no more than these series and their tests need."""
    names = ["small.config", *(["pud-small.config"] if tuple(series) == ("pud",) else [])]
    return [DIRECTORY / name for name in names]


def checked(series: Sequence[str]) -> dict[str, str]:
    """What checks compile these series with: for the series pud with what its tests use, since that is what it has to
    do with, and with DAX and memory of devices, of which it changes what nothing else compiles."""
    if "pud" not in series:
        return merge(fragments(series))
    wanted = merge([*fragments(series), DIRECTORY / "pud-test.config", DIRECTORY / "pud-device.config"])
    # Where there are the tracers of lab.config, it is not asked for.
    del wanted["CONFIG_ENABLE_DEFAULT_TRACERS"]
    return wanted


def stepwise(series: Sequence[str]) -> dict[str, str]:
    """The same for a kernel that is built for each patch, without the options of the series, which come with one."""
    more = ["pud-test.config", "pud-device.config"] if "pud" in series else ["steps.config"]
    return merge([FRAGMENT, *small(series), *(DIRECTORY / name for name in more)])


def merge(paths: Sequence[Path]) -> dict[str, str]:
    """The values that the fragments ask for; a later one overrides an earlier one."""
    wanted: dict[str, str] = {}
    for path in paths:
        try:
            wanted |= parse(path.read_text())
        except OSError as error:
            raise LabError(Exit.CONFIG, f"cannot read {path}: {error.strerror}") from error
    return wanted


def differing(wanted: Mapping[str, str], actual: Mapping[str, str]) -> list[str]:
    """What was asked for and is not so in `actual`, one line each."""
    return [
        f"{name}={value}, but it is {actual.get(name, 'n')}"
        for name, value in sorted(wanted.items())
        if actual.get(name, "n") != value
    ]


def missed(wanted: Mapping[str, str], config: str) -> list[str]:
    """The same of the text of a configuration."""
    return differing(wanted, parse(config))


def check(wanted: Mapping[str, str], config: str) -> None:
    """LabError with all of `missed`, if there are any."""
    if lines := missed(wanted, config):
        listed = "\n".join(f"  {line}" for line in lines)
        raise LabError(
            Exit.CONFIG,
            f"the kernel's configuration does not take these lines of kernel/config/:\n{listed}\n"
            "Likely a symbol was renamed in this base, or something it depends on is off.",
        )

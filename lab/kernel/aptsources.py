# SPDX-License-Identifier: GPL-2.0-only
"""Reads the host's apt sources, to learn its Debian mirror and the key that mirror is verified with."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_RELEASES = frozenset(
    "stable testing unstable oldstable sid experimental bookworm trixie forky duke".split()  # noqa: SIM905
)


@dataclass(frozen=True)
class Source:
    """One archive the host installs packages from."""

    uri: str
    suites: tuple[str, ...]
    components: tuple[str, ...]
    signed_by: str
    """Value of Signed-By: key files, fingerprints or a whole key block; empty for apt's own default keys."""
    where: Path

    def serves_debian(self) -> bool:
        """Whether this is a mirror of Debian proper, not of its security archive nor of a third party."""
        return "main" in self.components and any(suite.strip("/") in _RELEASES for suite in self.suites)


def parse_deb822(text: str, where: Path) -> Iterator[Source]:
    """The `deb` entries of a .sources file that are not disabled."""
    for stanza in re.split(r"\n(?:[ \t]*\n)+", text):
        fields: dict[str, str] = {}
        name = ""
        for line in stanza.splitlines():
            if line.startswith("#") or not line.strip():
                continue
            if line[0] in " \t":
                if name:
                    fields[name] += "\n" + line
                continue
            name, _, value = line.partition(":")
            name = name.strip().lower()
            fields[name] = value.strip()
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() in ("no", "false", "0"):
            continue
        for uri in fields.get("uris", "").split():
            yield Source(
                uri=uri,
                suites=tuple(fields.get("suites", "").split()),
                components=tuple(fields.get("components", "").split()),
                signed_by=fields.get("signed-by", ""),
                where=where,
            )


_ONE_LINE = re.compile(r"^deb\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)(?P<components>[^#]*)")


def parse_list(text: str, where: Path) -> Iterator[Source]:
    """The `deb` lines of a one-line-style .list file."""
    for line in text.splitlines():
        match = _ONE_LINE.match(line.strip())
        if not match:
            continue
        options = dict(word.partition("=")[::2] for word in (match["options"] or "").split())
        yield Source(
            uri=match["uri"],
            suites=(match["suite"],),
            components=tuple(match["components"].split()),
            signed_by=options.get("signed-by", "").replace(",", " "),
            where=where,
        )


def host_sources(main: Path, parts: Path) -> list[Source]:
    """Every entry of apt's main list and of its parts directory, in the order apt reads them."""
    files = [main, *(sorted(parts.iterdir()) if parts.is_dir() else [])]
    found: list[Source] = []
    for path in files:
        if not path.is_file() or path.suffix not in (".list", ".sources"):
            continue
        text = path.read_text(errors="replace")
        found += parse_deb822(text, path) if path.suffix == ".sources" else parse_list(text, path)
    return found


def debian_mirrors(sources: list[Source]) -> list[Source]:
    """The distinct mirrors of Debian among `sources` that apt can reach without a medium being inserted."""
    found: dict[str, Source] = {}
    for source in sources:
        if source.serves_debian() and not source.uri.startswith("cdrom:"):
            found.setdefault(source.uri.rstrip("/"), source)
    return list(found.values())

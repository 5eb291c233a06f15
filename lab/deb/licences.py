# SPDX-License-Identifier: GPL-2.0-only
"""debian/copyright: machine readable (DEP-5), with the licences and the notices of all that is linked in."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from lab.deb.linked import PROGRAM, Crate, taken
from lab.errors import Exit, LabError

_NAMES = {
    "MIT": ("LICENSE-MIT*", "LICENSE.MIT*", "LICENSE_MIT*"),
    "Zlib": ("LICENSE-ZLIB*", "LICENSE-Zlib*"),
    "BSL-1.0": ("LICENSE-BOOST*", "LICENSE-BSL*"),
    "BSD-2-Clause": ("LICENSE.BSD-2-Clause", "LICENSE-BSD*"),
    "BSD-3-Clause": ("LICENSE-BSD*", "LICENSE.BSD-3-Clause"),
    "Unicode-3.0": ("LICENSE-UNICODE*",),
}
"""Files of a crate that has several licences; one that has one calls it LICENSE or COPYING."""
_ANY = ("LICENSE", "LICENSE.md", "LICENSE.txt", "license", "COPYING", "COPYRIGHT", "COPYRIGHT.md")
_FIRST = {
    "MIT": "Permission is hereby granted",
    "Zlib": "This software is provided 'as-is'",
    "BSL-1.0": "Permission is hereby granted",
    "BSD-2-Clause": "Redistribution and use",
    "BSD-3-Clause": "Redistribution and use",
    "ISC": "Permission to use",
    "Unicode-3.0": "Permission is hereby granted",
}
"""How the text of a licence begins, after its title and notices."""
_NOTICE = re.compile(r"^\W*(?:copyright\b|\(c\)|©)\W*(?:\(c\)|©)?.*\d{4}.*$|^\W*copyright \(c\) .*$", re.IGNORECASE)
_RULE = re.compile(r"^~{3,}$", re.MULTILINE)
_SIGNS = re.compile(r"^\W*(?:copyright\s*)?(?:\(c\)|©)?\s*", re.IGNORECASE)
_HEAD = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: mthp_ext
Comment: The package is built from one checkout and cargo's lock. Files below vendor/ are the crates that cargo fetches
 and links into the program; what builds it and is not in it is in mthp_ext.cdx.json.
 Made by lab/deb/licences.py of the licence files of the crates. Where a crate offers a choice, the licence here is the
 one that goes with GPL-2.0-only.

Files: *
Copyright: the authors of mthp_ext
License: GPL-2.0-only
"""
_GPL = """\
License: GPL-2.0-only
 This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
 License as published by the Free Software Foundation; version 2 of the License.
 .
 This program is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY; without even the implied
 warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the GNU General Public License for more details.
 .
 On Debian systems the whole text of version 2 is in /usr/share/common-licenses/GPL-2.
"""


def _files(crate: Crate, licence: str, only: bool) -> Iterator[Path]:
    for pattern in (*_NAMES.get(licence, ()), *(_ANY if only else ())):
        yield from sorted(crate.source.glob(pattern))
    if not only:
        for name in _ANY:
            yield from sorted(crate.source.glob(name))


def text_of(file: str, licence: str) -> tuple[list[str], str]:
    """Notices and terms of a licence's file; the terms empty if they are not there."""
    # Debian's field says itself what it is; a notice with <year> is of a form that nobody filled in.
    lines = [line for line in file.splitlines() if _NOTICE.match(line) and "<" not in line]
    notices = [_SIGNS.sub("", line).strip() for line in lines]
    first = _FIRST[licence]
    at = file.find(first)
    if at < 0:
        return notices, ""
    # Some files have several licences, with a line of signs between them.
    terms = _RULE.split(file[at:], maxsplit=1)[0]
    return [one for one in notices if one not in terms], terms.strip()


def _found(crate: Crate, licence: str) -> tuple[list[str], str]:
    only = " " not in crate.expression and "/" not in crate.expression
    for path in _files(crate, licence, only):
        notices, terms = text_of(path.read_text(errors="replace"), licence)
        if terms:
            return notices, terms
    return [], ""


def _authors(crate: Crate) -> str:
    return f"the authors of {crate.name}"


def _words(text: str) -> str:
    return re.sub(r"[\W_]+", " ", text).lower().strip()


def _indented(text: str) -> str:
    return "".join(f" {line.strip() or '.'}\n" for line in text.splitlines())


def stanzas(crates: Sequence[Crate], compiler: str) -> str:
    """The whole file."""
    texts: dict[str, list[str]] = {}
    """By licence, the wordings there are of it."""
    waiting: list[tuple[str, str, list[str], list[str]]] = []
    for crate in crates:
        if crate.name == PROGRAM or not crate.linked:
            continue
        names, notices = [], []
        for licence in taken(crate.expression):
            said, terms = _found(crate, licence)
            known = texts.setdefault(licence, [])
            words = [_words(one) for one in known]
            # A crate without a file of its own is under the usual wording.
            if terms and _words(terms) not in words:
                known.append(terms)
                words.append(_words(terms))
            number = words.index(_words(terms)) if terms else 0
            names.append(f"{licence}~{number}" if number else licence)
            notices += [one for one in said if one not in notices]
        notices = [one if re.search(r"[A-Za-z]", one) else f"{one} {_authors(crate)}" for one in notices]
        waiting.append((crate.name, crate.version, notices or [_authors(crate)], names))
    waiting.append(("rust-std", compiler, ["The Rust Project contributors"], ["MIT"]))
    if lacking := [licence for licence, known in texts.items() if not known]:
        raise LabError(Exit.BUILD, f"no text of {', '.join(lacking)} in any crate that is under it")
    parts = [_HEAD]
    for name, version, notices, names in waiting:
        lines = "\n ".join(notices)
        parts.append(f"Files: vendor/{name}-{version}/*\nCopyright: {lines}\nLicense: {' and '.join(names)}\n")
    parts.append(_GPL)
    for licence, known in sorted(texts.items()):
        for number, terms in enumerate(known):
            name = f"{licence}~{number}" if number else licence
            parts.append(f"License: {name}\n{_indented(terms)}")
    return "\n".join(parts)

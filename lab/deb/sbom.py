# SPDX-License-Identifier: GPL-2.0-only
"""The software bill of materials: CycloneDX 1.5, of cargo's lock and metadata alone, the same bytes for the same lock
and compiler."""

import json
import uuid
from collections.abc import Sequence
from typing import Any

from lab.deb.linked import Crate, spdx

_NAMESPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")
"""RFC 9562: names that are URLs."""


def _std(compiler: str) -> str:
    return f"pkg:generic/rust-std@{compiler}"


def _component(crate: Crate) -> dict[str, Any]:
    return {
        "type": "library",
        "bom-ref": crate.purl,
        "name": crate.name,
        "version": crate.version,
        # What is not in the program is named all the same: it decided what is.
        "scope": "required" if crate.linked else "excluded",
        # What another crate brings along is in the hash of that.
        **({"hashes": [{"alg": "SHA-256", "content": crate.sha256}]} if crate.sha256 else {}),
        "licenses": [{"expression": spdx(crate.expression)}],
        "purl": crate.purl,
    }


def bom(crates: Sequence[Crate], compiler: str, when: str) -> dict[str, Any]:
    """The bill; `when` is the commit's time, not the clock's."""
    program, *others = crates
    std = _std(compiler)
    library = {
        "type": "library",
        "bom-ref": std,
        "name": "rust-std",
        "version": compiler,
        "scope": "required",
        "licenses": [{"expression": "MIT OR Apache-2.0"}],
        "purl": std,
    }
    found: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": when,
            "tools": {"components": [{"type": "application", "name": "lab/deb/sbom.py", "version": program.version}]},
            "component": {
                "type": "application",
                "bom-ref": program.purl,
                "name": program.name,
                "version": program.version,
                "licenses": [{"expression": program.expression}],
                "purl": program.purl,
            },
        },
        "components": [*(_component(crate) for crate in others), library],
        "dependencies": [
            {"ref": program.purl, "dependsOn": [*program.uses, std]},
            *({"ref": crate.purl, "dependsOn": list(crate.uses)} for crate in others),
            {"ref": std, "dependsOn": []},
        ],
    }
    # Of what it says, so that two that differ have different numbers.
    found["serialNumber"] = uuid.uuid5(_NAMESPACE, json.dumps(found, sort_keys=True)).urn
    return found


def text(crates: Sequence[Crate], compiler: str, when: str) -> str:
    """The file."""
    return json.dumps(bom(crates, compiler, when), indent=1, sort_keys=True) + "\n"

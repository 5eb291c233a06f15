#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Overrides for the pods that ask for a policy, of `kubectl get pods -A -o json` on stdin:

    kubectl get pods -A -o json | python3 pods.py database small-services >pods.toml

A pod asks by the annotation or, without one, the label `mthp-ext/policy`. The arguments are what pods may ask for: who
may make a pod may ask, so a policy that allows more than that of their class is not for every cluster. Pods that have
ended are left out. What it prints is a drop-in of the configuration: docs/kubernetes.md."""

import json
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from typing import Any

KEY = "mthp-ext/policy"
_UID = re.compile(r"[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12}")
_ENDED = {"Succeeded", "Failed"}


def asked(metadata: Mapping[str, Any]) -> str:
    """The policy that a pod asks for, or nothing."""
    both = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
    return str(both.get(KEY, ""))


def cgroups(metadata: Mapping[str, Any]) -> list[str]:
    """Patterns of its cgroup, for both drivers of kubelet."""
    # A pod of the node's manifests has another UID in the API.
    uid = (metadata.get("annotations") or {}).get("kubernetes.io/config.hash") or metadata["uid"]
    if not _UID.fullmatch(uid):
        raise ValueError(f"its UID is none: {uid!r}")
    return [f"kubepods.slice/**/kubepods*-pod{uid.replace('-', '_')}.slice", f"kubepods/**/pod{uid}"]


def overrides(pods: Iterable[Mapping[str, Any]], allowed: Collection[str]) -> tuple[str, list[str]]:
    """The drop-in, and what was refused."""
    parts, refused = ["# SPDX-License-Identifier: GPL-2.0-only\n# Made by pods.py.\n"], []
    for pod in sorted(pods, key=lambda pod: (pod["metadata"]["namespace"], pod["metadata"]["name"])):
        metadata = pod["metadata"]
        policy, name = asked(metadata), f"{metadata['namespace']}/{metadata['name']}"
        if not policy or pod.get("status", {}).get("phase") in _ENDED:
            continue
        try:
            if policy not in allowed:
                raise ValueError(f"it may not ask for {policy!r}")
            # Strings of JSON are strings of TOML.
            patterns = json.dumps(cgroups(metadata))
        except ValueError as error:
            refused.append(f"{name}: {error}")
            continue
        parts.append(f"# {name}\n[[override]]\ncgroups = {patterns}\npolicy = {json.dumps(policy)}\n")
    return "\n".join(parts), refused


def main() -> int:
    """2 without arguments, 1 if a pod was refused: what the others ask for is printed."""
    if len(sys.argv) < 2:
        print("pods.py POLICY...: the policies that pods may ask for", file=sys.stderr)
        return 2
    text, refused = overrides(json.load(sys.stdin)["items"], sys.argv[1:])
    sys.stdout.write(text)
    for line in refused:
        print(line, file=sys.stderr)
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())

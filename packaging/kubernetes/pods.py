#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Overrides for the pods that ask for a policy, of `kubectl get pods -A -o json` on stdin:

    kubectl get pods -A -o json | python3 pods.py database small-services >pods.toml

A pod asks by the annotation or, without one, the label `mthp-ext/policy`. The arguments are what pods may ask for: who
may make a pod may ask, so a policy that allows more than that of their class is not for every cluster. Pods that have
ended are left out. Pods of a node's manifests have another UID in the API, and an annotation says which; who may make
pods may write it, so it is believed in the namespaces of --static-in only. What it prints is a drop-in of the
configuration: docs/kubernetes.md."""

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

KEY = "mthp-ext/policy"
STATIC = "kubernetes.io/config.hash"
"""The UID that kubelet gives a pod of the node's manifests."""
STATIC_IN = ("kube-system",)
_UID = re.compile(r"[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12}")
_ENDED = {"Succeeded", "Failed"}


def asked(metadata: Mapping[str, Any]) -> str:
    """The policy that a pod asks for, or nothing."""
    both = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
    return str(both.get(KEY, ""))


def uid_of(metadata: Mapping[str, Any], static_in: Collection[str]) -> str:
    """The UID that its cgroup has in its name; the one of the API where nobody is believed."""
    said = (metadata.get("annotations") or {}).get(STATIC)
    return str((said if metadata["namespace"] in static_in else "") or metadata["uid"])


def cgroups(uid: str) -> list[str]:
    """Patterns of the cgroup of a pod, for both drivers of kubelet."""
    if not _UID.fullmatch(uid):
        raise ValueError(f"its UID is none: {uid!r}")
    return [f"kubepods.slice/**/kubepods*-pod{uid.replace('-', '_')}.slice", f"kubepods/**/pod{uid}"]


def overrides(
    pods: Iterable[Mapping[str, Any]], allowed: Collection[str], static_in: Collection[str] = STATIC_IN
) -> tuple[str, list[str]]:
    """The drop-in, and what was refused."""
    parts, refused = ["# SPDX-License-Identifier: GPL-2.0-only\n# Made by pods.py.\n"], []
    alive = [pod["metadata"] for pod in pods if pod.get("status", {}).get("phase") not in _ENDED]
    # Of those that ask for nothing, too: nobody is to ask in their place.
    owners = Counter(uid_of(metadata, static_in).replace("-", "") for metadata in alive)
    for metadata in sorted(alive, key=lambda metadata: (metadata["namespace"], metadata["name"])):
        policy, name = asked(metadata), f"{metadata['namespace']}/{metadata['name']}"
        if not policy:
            continue
        uid = uid_of(metadata, static_in)
        try:
            if policy not in allowed:
                raise ValueError(f"it may not ask for {policy!r}")
            if (metadata.get("annotations") or {}).get(STATIC) and metadata["namespace"] not in static_in:
                raise ValueError(f"it has {STATIC}, which is believed in {', '.join(static_in)} only: --static-in")
            if owners[uid.replace("-", "")] > 1:
                raise ValueError(f"another pod has the same UID: {uid}")
            # Strings of JSON are strings of TOML.
            patterns = json.dumps(cgroups(uid))
        except ValueError as error:
            refused.append(f"{name}: {error}")
            continue
        parts.append(f"# {name}\n[[override]]\ncgroups = {patterns}\npolicy = {json.dumps(policy)}\n")
    return "\n".join(parts), refused


def main() -> int:
    """2 without arguments, 1 if a pod was refused: what the others ask for is printed."""
    parser = argparse.ArgumentParser(description="overrides for the pods that ask for a policy; pods on stdin")
    parser.add_argument("policy", nargs="+", help="what pods may ask for")
    parser.add_argument(
        "--static-in",
        action="append",
        metavar="NAMESPACE",
        help=f"where {STATIC} is believed; may be given several times (default: {', '.join(STATIC_IN)})",
    )
    args = parser.parse_args()
    text, refused = overrides(json.load(sys.stdin)["items"], args.policy, args.static_in or STATIC_IN)
    sys.stdout.write(text)
    for line in refused:
        print(line, file=sys.stderr)
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: GPL-2.0-only
"""`make test-kubernetes`: the manifests by the schemas of Kubernetes and by rules of our own; and the image under
containerd, with the rights of the DaemonSet, beside containers in cgroups as kubelet names them, in a guest."""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from lab import proc, setup
from lab.checks import kubectl, registry, systemd
from lab.checks.deb import LIBELF
from lab.checks.result import Suite
from lab.deb import build as deb
from lab.deb import oci
from lab.errors import Exit
from lab.kernel import build
from lab.paths import REPO
from lab.vm import accel
from lab.vm.cpio import CpioWriter
from lab.vm.initramfs import BUSYBOX

MANIFESTS = REPO / "packaging" / "kubernetes"
_LOCK_FILE = REPO / "lab" / "kubernetes.lock"
_VERSIONS = ("1.29", "1.33", "1.37")
"""The oldest that still had updates when this was written, one between, the newest."""
_UNIT = REPO / "packaging" / "systemd" / "mthp_ext.service"
_PROGRAMS = {"pods.py", "reload.py"}
_APPARMOR = "AppArmor asked for, so no node without it takes the pod"
_HOST_PATHS = {"/sys/fs/cgroup"}
_OPEN = "import json, sys, yaml; print(json.dumps([one for p in sys.argv[1:] for one in yaml.safe_load_all(open(p))]))"
_UID = "7f3c1b2a-9d4e-4c5f-8a6b-0c1d2e3f4a5b"
"""Of the pods in the guest."""
_SEEDS = ("containerd", "runc", "zlib1g", "libgcc-s1", "findutils")


def capabilities() -> set[str]:
    """Those of the unit, which its tests show to be enough and needed."""
    found = re.search(r"^CapabilityBoundingSet=(.*)$", _UNIT.read_text(), re.MULTILINE)
    return {word.removeprefix("CAP_") for word in found[1].split()} if found else set()


def _remote(one: Mapping[str, Any]) -> list[str]:
    """Its probes by the network."""
    probes = {key: one[key] for key in ("startupProbe", "livenessProbe", "readinessProbe") if key in one}
    return [key for key, probe in probes.items() if {"httpGet", "tcpSocket", "grpc"} & probe.keys()]


def _of_container(one: Mapping[str, Any]) -> Iterator[str]:
    has = one.get("securityContext", {})
    limits, requests = (one.get("resources", {}).get(key, {}) for key in ("limits", "requests"))
    held = has.get("capabilities", {})
    for ok, what in (
        (has.get("privileged") is False, "privileged"),
        (has.get("allowPrivilegeEscalation") is False, "allowPrivilegeEscalation"),
        (has.get("readOnlyRootFilesystem") is True, "a root that can be written"),
        (held.get("drop") == ["ALL"], "capabilities of the runtime's"),
        (set(held.get("add", [])) == capabilities(), f"not the unit's capabilities: {held.get('add')}"),
        ("memory" in limits and "memory" in requests and "cpu" in requests, "no requests, or no limit of memory"),
        ("exec" in one.get("startupProbe", {}), "a rollout does not wait until it works"),
        (not _remote(one), f"who reaches the port has it ended: {', '.join(_remote(one))}"),
        (not str(one.get("image", "")).endswith(":latest"), "an image that changes"),
        ("seccompProfile" not in has, "a profile of its own"),
        ("appArmorProfile" not in has, _APPARMOR),
    ):
        if not ok:
            yield f"{one.get('name')}: {what}"


def _of_pod(spec: Mapping[str, Any]) -> Iterator[str]:
    paths = {one["hostPath"]["path"] for one in spec.get("volumes", []) if "hostPath" in one}
    profile = spec.get("securityContext", {}).get("seccompProfile", {}).get("type")
    for ok, what in (
        (not any(spec.get(key) for key in ("hostNetwork", "hostPID", "hostIPC")), "a namespace of the host's"),
        (spec.get("automountServiceAccountToken") is False, "a token for the API"),
        ("serviceAccountName" not in spec, "an account of its own"),
        (profile in {"RuntimeDefault", "Localhost"}, "no seccomp profile"),
        ("appArmorProfile" not in spec.get("securityContext", {}), _APPARMOR),
        (paths <= _HOST_PATHS, f"paths of the host: {sorted(paths - _HOST_PATHS)}"),
    ):
        if not ok:
            yield what
    for key in ("initContainers", "containers"):
        for one in spec.get(key, []):
            yield from _of_container(one)


def _of_network(one: Mapping[str, Any], documents: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Whether policies let in only pods with some label, in namespaces with one, to the ports that it has."""
    labels = one["spec"]["template"].get("metadata", {}).get("labels", {}).items()
    of_pod = one["spec"]["template"]["spec"]["containers"]
    ports = {port["containerPort"] for container in of_pod for port in container.get("ports", [])}
    policies = [
        other["spec"]
        for other in documents
        if other.get("kind") == "NetworkPolicy"
        and other["metadata"].get("namespace") == one.get("metadata", {}).get("namespace")
        and other["spec"]["podSelector"].get("matchLabels", {}).items() <= labels
    ]
    for direction in ("Ingress", "Egress"):
        if not any(direction in policy.get("policyTypes", ()) for policy in policies):
            yield f"no policy of the network: {direction}"
    for rule in (rule for policy in policies for rule in policy.get("ingress", [])):
        peers = rule.get("from", [])
        narrow = [
            "ipBlock" not in peer
            and all(peer.get(key, {}).get("matchLabels") for key in ("namespaceSelector", "podSelector"))
            for peer in peers
        ]
        if not peers or not all(narrow):
            yield "anybody may ask for metrics"
        if {port.get("port") for port in rule.get("ports", [{}])} != ports:
            yield f"let in to other ports than {sorted(ports)}"
    if any(policy.get("egress") for policy in policies):
        yield "it asks somebody"


def against(documents: Sequence[Mapping[str, Any]]) -> list[str]:
    """What rules have against the manifests."""
    sets = [one for one in documents if one.get("kind") == "DaemonSet"]
    found = [] if sets else ["no DaemonSet"]
    for one in sets:
        found += _of_pod(one["spec"]["template"]["spec"])
        noted = one["spec"]["template"].get("metadata", {}).get("annotations", {})
        found += [f"{_APPARMOR}: {key}" for key in noted if key.startswith("container.apparmor.")]
        found += _of_network(one, documents)
    rights = [
        one["kind"] for one in documents if one["kind"] in {"ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding"}
    ]
    return [*found, *(f"rights in the API: {kind}" for kind in rights)]


def _named(documents: Sequence[Mapping[str, Any]]) -> tuple[set[str], set[str]]:
    """The ConfigMaps that DaemonSets cannot do without, and their images."""
    sets = [one["spec"]["template"]["spec"] for one in documents if one["kind"] == "DaemonSet"]
    sources = [
        one for spec in sets for volume in spec["volumes"] for one in volume.get("projected", {}).get("sources", [])
    ]
    needed = [one["configMap"] for one in sources if "configMap" in one]
    used = {one["name"] for one in needed if not one.get("optional")}
    return used, {container["image"] for spec in sets for container in spec["containers"]}


def amiss(kustomization: Mapping[str, Any], rendered: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is wrong with what kustomize has made of it: what pods would wait for, or get from elsewhere."""
    used, images = _named(rendered)
    maps = {one["metadata"]["name"] for one in rendered if one["kind"] == "ConfigMap"}
    hashed = {one["name"] for one in kustomization["configMapGenerator"]}
    found = [f"no such ConfigMap: {name}" for name in sorted(used - maps)]
    found += [f"nobody uses it: {name}" for name in sorted(maps - used)]
    found += [f"a change of it does not roll: {name}" for name in sorted(maps & hashed)]
    wanted = {f"{one['newName']}:{one['newTag']}" for one in kustomization["images"]}
    found += [f"another image: {name}" for name in sorted(images ^ wanted)]
    spaced = [one["metadata"].get("namespace") for one in rendered if one["kind"] != "Namespace"]
    return found + ["another namespace"] * any(name != kustomization["namespace"] for name in spaced)


def misses(kustomization: Mapping[str, Any], documents: Sequence[Mapping[str, Any]], there: set[str]) -> list[str]:
    """What the kustomization names and is not there, or is there and not named."""
    maps = {one["name"]: one["files"] for one in kustomization["configMapGenerator"]}
    named = {*kustomization["resources"], *kustomization.get("configurations", ())}
    named |= {name for files in maps.values() for name in files}
    found = [f"{name}: named or there, not both" for name in sorted(named ^ there)]
    used, images = _named(documents)
    found += [f"no such configuration: {name}" for name in sorted(used ^ set(maps))]
    return found + [
        f"no such image: {name}" for name in sorted(images ^ {one["name"] for one in kustomization["images"]})
    ]


def _read(*paths: str) -> list[dict[str, Any]]:
    """The documents of these files."""
    argv = [str(setup.python_with(_LOCK_FILE)), "-c", _OPEN, *paths]
    documents: list[dict[str, Any]] = json.loads(proc.output(argv, what="reading the manifests", code=Exit.TESTS))
    return documents


def host() -> Suite:
    """What can be said of the manifests without a cluster."""
    suite = Suite("kubernetes")
    files = {path.name for path in MANIFESTS.iterdir()}
    kustomization = _read(str(MANIFESTS / "kustomization.yaml"))[0]
    resources = [str(MANIFESTS / name) for name in kustomization["resources"]]
    documents = _read(*resources)
    _by_schema(suite, "the manifests", resources, len(documents))
    suite.check("they have the rights that they need and no more", not (found := against(documents)), "\n".join(found))
    found = misses(kustomization, documents, files - {"kustomization.yaml", *_PROGRAMS})
    suite.check("the kustomization names what is there", not found, "\n".join(found))
    _by_kustomize(suite, kustomization)
    [daemon_set] = [one for one in documents if one["kind"] == "DaemonSet"]
    with tempfile.TemporaryDirectory() as scratch:
        kubectl.check(suite, daemon_set, _drop_in(), Path(scratch))
    suite.settle()
    return suite


def of_image(image: Path) -> Suite:
    """What another tool than containerd makes of it."""
    suite = Suite("kubernetes-image")
    registry.check(suite, image)
    suite.settle()
    return suite


def _by_schema(suite: Suite, what: str, paths: Sequence[str], count: int) -> None:
    validate = str(setup.python_with(_LOCK_FILE).with_name("kubernetes-validate"))
    for version in _VERSIONS:
        argv = [validate, "--strict", "-k", version, *paths]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        passed = done.stdout.count(" passed for resource ") + done.stderr.count(" passed for resource ")
        ok = done.returncode == 0 and passed == count
        suite.check(f"the schemas of {version} take {what}", ok, done.stdout + done.stderr)


def _by_kustomize(suite: Suite, kustomization: Mapping[str, Any]) -> None:
    """What `kubectl apply -k` would send."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "rendered.yaml"
        argv = [str(kubectl.program()), "kustomize", str(MANIFESTS)]
        path.write_text(proc.output(argv, what="rendering the kustomization", code=Exit.TESTS))
        rendered = _read(str(path))
        _by_schema(suite, "what kustomize makes", [str(path)], len(rendered))
    found = [*amiss(kustomization, rendered), *against(rendered)]
    suite.check("what kustomize makes belongs together, and has no more rights", not found, "\n".join(found))


@cache
def _drop_in() -> str:
    """What pods.py makes of a pod that asks by a label."""
    metadata = {"namespace": "default", "name": "shop", "uid": _UID, "labels": {"mthp-ext/policy": "database"}}
    argv = [sys.executable, str(MANIFESTS / "pods.py"), "database"]
    pods = json.dumps({"items": [{"metadata": metadata, "status": {"phase": "Running"}}]})
    return subprocess.run(argv, input=pods, capture_output=True, text=True, check=True).stdout


def _fill(image: Path, container: Mapping[str, Any], archive: CpioWriter) -> None:
    """The image, the DaemonSet's container as options of ctr, and a root for the containers of pods."""
    archive.file("/lab/image.tar", image.read_bytes())
    archive.file("/lab/tag", image.name.removesuffix(".oci.tar").partition("_")[2].encode())
    held = container["securityContext"]["capabilities"]["add"]
    archive.file("/lab/capabilities", "".join(f"CAP_{name}\n" for name in held).encode())
    archive.file("/lab/arguments", "".join(f"{word}\n" for word in container["args"]).encode())
    limit = container["resources"]["limits"]["memory"]
    archive.file("/lab/memory", str(int(limit.removesuffix("Mi")) << 20).encode())
    probe = container["startupProbe"]["exec"]["command"]
    archive.file("/lab/probe", "".join(f"{word}\n" for word in probe).encode())
    archive.file("/lab/uid", _UID.encode())
    archive.file("/lab/pods.toml", _drop_in().encode())
    archive.file("/lab/config.toml", (MANIFESTS / "config.toml").read_bytes())
    archive.file("/lab/pod/bin/busybox", BUSYBOX.read_bytes(), 0o755)
    for name in ("proc", "dev", "sys", "tmp", "run"):
        archive.directory(f"/lab/pod/{name}")


def main() -> int:
    """Runs all; 1 if a check failed."""
    setup.ensure(setup.Need.DEB | setup.Need.VM)
    suites = [host()]
    kernel = build.ensure()
    image = oci.image(deb.package())
    suites.append(of_image(image))
    container = _read(str(MANIFESTS / "daemonset.yaml"))[0]["spec"]["template"]["spec"]["containers"][0]
    script = REPO / "lab" / "checks" / "kubernetes.sh"
    seeds = (*_SEEDS, LIBELF[deb.release()])
    guest = systemd.Guest("kubernetes", script, partial(_fill, image, container), seeds, containers=True)
    suites.append(systemd.run(guest, kernel, accel.of(kernel)[0]))
    codes = [systemd.show("test-kubernetes", suite) for suite in suites]
    return max(codes, default=Exit.TESTS)

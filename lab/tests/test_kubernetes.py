# SPDX-License-Identifier: GPL-2.0-only
"""Rules for the manifests, and the container image."""

import copy
import gzip
import hashlib
import importlib.util
import io
import json
import tarfile
import tomllib
import unittest
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from lab.checks import kubernetes
from lab.deb import oci

_spec = importlib.util.spec_from_file_location("pods", kubernetes.MANIFESTS / "pods.py")
assert _spec is not None and _spec.loader is not None
pods = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(pods)

WHEN = datetime(2026, 11, 22, 1, 2, 3, tzinfo=UTC)


def good() -> list[dict[str, Any]]:
    """A DaemonSet that the rules let pass."""
    container = {
        "name": "c",
        "image": "i",
        "livenessProbe": {},
        "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}, "limits": {"memory": "1Mi"}},
        "securityContext": {
            "privileged": False,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"], "add": ["BPF", "PERFMON", "SYS_RESOURCE"]},
        },
    }
    spec = {
        "automountServiceAccountToken": False,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [
            {"hostPath": {"path": "/sys/fs/cgroup"}},
            {"projected": {"sources": [{"configMap": {"name": "m"}}]}},
        ],
    }
    return [{"kind": "DaemonSet", "spec": {"template": {"spec": spec}}}]


class RulesTest(unittest.TestCase):
    def test_each_right_too_many_is_named(self) -> None:
        self.assertEqual(kubernetes.against(good()), [])

        def pod(change: Callable[[dict[str, Any]], object]) -> list[str]:
            documents = copy.deepcopy(good())
            change(documents[0]["spec"]["template"]["spec"])
            return kubernetes.against(documents)

        def container(change: Callable[[dict[str, Any]], object]) -> list[str]:
            return pod(lambda spec: change(spec["containers"][0]))

        for found in (
            pod(lambda spec: spec.update(hostPID=True)),
            pod(lambda spec: spec.pop("automountServiceAccountToken")),
            pod(lambda spec: spec.update(serviceAccountName="a")),
            pod(lambda spec: spec["securityContext"]["seccompProfile"].update(type="Unconfined")),
            pod(lambda spec: spec["volumes"].append({"hostPath": {"path": "/"}})),
            container(lambda one: one["securityContext"].update(privileged=True)),
            container(lambda one: one["securityContext"].pop("privileged")),
            container(lambda one: one["securityContext"].pop("allowPrivilegeEscalation")),
            container(lambda one: one["securityContext"].update(readOnlyRootFilesystem=False)),
            container(lambda one: one["securityContext"]["capabilities"].pop("drop")),
            container(lambda one: one["securityContext"]["capabilities"]["add"].append("SYS_ADMIN")),
            container(lambda one: one["resources"].pop("limits")),
            container(lambda one: one.pop("livenessProbe")),
            container(lambda one: one.update(image="i:latest")),
            kubernetes.against([*good(), {"kind": "ClusterRole"}]),
            pod(lambda spec: spec.update(initContainers=[{"name": "x"}]))[:1],
        ):
            self.assertEqual(len(found), 1, found)
        self.assertEqual(kubernetes.against([]), ["no DaemonSet"])

    def test_a_kustomization_names_what_is_there(self) -> None:
        names: dict[str, Any] = {
            "resources": ["d.yaml"],
            "configMapGenerator": [{"name": "m", "files": ["c"]}],
            "images": [{"name": "i"}],
        }
        self.assertEqual(kubernetes.misses(names, good(), {"d.yaml", "c"}), [])
        self.assertEqual(len(kubernetes.misses(names, good(), {"d.yaml", "c", "more"})), 1)
        self.assertEqual(len(kubernetes.misses(names, good(), {"c"})), 1)
        names["images"][0]["name"] = "j"
        self.assertEqual(len(kubernetes.misses(names, good(), {"d.yaml", "c"})), 2)


def pod(name: str, **others: Any) -> dict[str, Any]:
    """One of a namespace, as the API has it."""
    uid = "01234567-89ab-cdef-0123-456789abcdef"
    return {"metadata": {"namespace": "shop", "name": name, "uid": uid, **others}, "status": {"phase": "Running"}}


class PodsTest(unittest.TestCase):
    def test_what_pods_ask_for_is_an_override_of_their_cgroup(self) -> None:
        made = pods.overrides(
            [
                pod("c", labels={"mthp-ext/policy": "database"}, annotations={"mthp-ext/policy": "small-services"}),
                pod("b", labels={"mthp-ext/policy": "database"}, annotations=None),
                pod("a", labels={"app": "a"}),
                # Of the node's manifests.
                pod(
                    "d",
                    annotations={
                        "mthp-ext/policy": "database",
                        "kubernetes.io/config.hash": "8daa50c3a64c9ff60bb9eab7b44b56fd",
                    },
                ),
                {**pod("e", labels={"mthp-ext/policy": "database"}), "status": {"phase": "Succeeded"}},
            ],
            ["database", "small-services"],
        )
        text, refused = made
        self.assertEqual(refused, [])
        found = tomllib.loads(text)["override"]
        self.assertEqual([one["policy"] for one in found], ["database", "small-services", "database"])
        self.assertEqual(
            found[0]["cgroups"],
            [
                "kubepods.slice/**/kubepods*-pod01234567_89ab_cdef_0123_456789abcdef.slice",
                "kubepods/**/pod01234567-89ab-cdef-0123-456789abcdef",
            ],
        )
        self.assertIn("kubepods/**/pod8daa50c3a64c9ff60bb9eab7b44b56fd", found[2]["cgroups"])
        self.assertIn("# shop/b\n", text)

    def test_a_pod_gets_no_more_than_it_may_ask_for(self) -> None:
        wrong = [
            pod("a", labels={"mthp-ext/policy": "off"}),
            pod("b", labels={"mthp-ext/policy": "database"}, uid="*"),
            pod("c", annotations={"mthp-ext/policy": "database", "kubernetes.io/config.hash": "x/**"}),
            pod("d", annotations={"mthp-ext/policy": 'database"\ncgroups = ["**"]'}),
        ]
        text, refused = pods.overrides(wrong, ["database"])
        self.assertEqual([line.partition(":")[0] for line in refused], [f"shop/{name}" for name in "abcd"])
        self.assertEqual(tomllib.loads(text), {})


class ImageTest(unittest.TestCase):
    def test_an_archive_is_what_its_index_says(self) -> None:
        tree = oci.Tree({"usr/sbin/mthp_ext": (b"x", 0o755)}, {"lib": "usr/lib"}, {"tmp", "run/mthp_ext"})
        made = oci.archive(tree, "1.0~git-1~deb12", "abc", WHEN)
        self.assertEqual(made, oci.archive(tree, "1.0~git-1~deb12", "abc", WHEN))
        with tarfile.open(fileobj=io.BytesIO(made)) as archive:
            parts = {one.name: file.read() for one in archive if (file := archive.extractfile(one))}
        self.assertEqual(json.loads(parts["oci-layout"]), {"imageLayoutVersion": "1.0.0"})

        def blob(of: dict[str, Any]) -> bytes:
            kind, _, digest = str(of["digest"]).partition(":")
            data = parts[f"blobs/{kind}/{digest}"]
            self.assertEqual((hashlib.sha256(data).hexdigest(), len(data)), (digest, of["size"]))
            return data

        named = json.loads(parts["index.json"])["manifests"][0]
        self.assertEqual(named["annotations"]["org.opencontainers.image.ref.name"], "1.0-git-1-deb12")
        manifest = json.loads(blob(named))
        config, layer = json.loads(blob(manifest["config"])), gzip.decompress(blob(manifest["layers"][0]))
        self.assertEqual(config["rootfs"]["diff_ids"], [f"sha256:{hashlib.sha256(layer).hexdigest()}"])
        self.assertEqual(len(parts), 5)
        with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
            self.assertEqual(
                [(one.name, oct(one.mode), one.uid, one.mtime) for one in archive],
                [
                    (name, mode, 0, int(WHEN.timestamp()))
                    for name, mode in (
                        ("lib", "0o777"), ("run", "0o755"), ("run/mthp_ext", "0o755"), ("tmp", "0o1777"),
                        ("usr", "0o755"), ("usr/sbin", "0o755"), ("usr/sbin/mthp_ext", "0o755"),
                    )
                ],
            )  # fmt: skip

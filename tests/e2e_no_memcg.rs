// SPDX-License-Identifier: GPL-2.0-only
//! A kernel booted with cgroup_disable=memory.

mod common;

use common::ext::{attached, fails, output};
use common::world;

#[test]
#[ignore = "needs the lab's VM, booted with cgroup_disable=memory"]
fn every_policy_is_refused() {
    world();
    for policy in ["default", "reactive", "headroom"] {
        let (code, message) = fails(&["run", "--policy", policy]);
        assert_eq!(code, 7, "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
        assert!(message.contains("cgroup_disable"), "{message}");
        assert_eq!(attached(), 0);
    }
}

#[test]
#[ignore = "needs the lab's VM, booted with cgroup_disable=memory"]
fn support_names_the_memory_controller() {
    world();
    let out = output(&["support", "--json"]);
    assert_eq!(out.status.code(), Some(7));
    let report: serde_json::Value = common::schema::answer("support", &out.stdout);
    assert_eq!(report["verdict"], "memory-controller");
    assert_eq!(report["policies"], serde_json::json!([]));
}

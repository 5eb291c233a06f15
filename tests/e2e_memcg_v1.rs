// SPDX-License-Identifier: GPL-2.0-only
//! The memory controller lives on a cgroup v1 hierarchy, beside cgroup v2.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod common;

use std::sync::Once;

use nix::mount::{MsFlags, mount};

use common::ext::{attached, fails, output};
use common::world;

/// Takes the memory controller away from v2.
fn take_memory() {
    static ONCE: Once = Once::new();
    world();
    ONCE.call_once(|| {
        let dir = "/tmp/memory-v1";
        std::fs::create_dir_all(dir).unwrap();
        mount(
            Some("none"),
            dir,
            Some("cgroup"),
            MsFlags::empty(),
            Some("memory"),
        )
        .unwrap();
    });
}

#[test]
#[ignore = "needs the lab's VM, with the memory controller free"]
fn every_policy_is_refused() {
    take_memory();
    for policy in ["default", "reactive", "headroom"] {
        let (code, message) = fails(&["run", "--policy", policy]);
        assert_eq!(code, 7, "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
        assert!(message.contains("cgroup v1"), "{message}");
        assert_eq!(attached(), 0);
    }
}

#[test]
#[ignore = "needs the lab's VM, with the memory controller free"]
fn support_names_the_memory_controller() {
    take_memory();
    let out = output(&["support", "--json"]);
    assert_eq!(out.status.code(), Some(7));
    let report: serde_json::Value = common::schema::answer("support", &out.stdout);
    assert_eq!(report["verdict"], "memory-controller");
}

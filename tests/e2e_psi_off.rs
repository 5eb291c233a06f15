// SPDX-License-Identifier: GPL-2.0-only
//! A kernel booted with psi=0.

mod common;

use common::ext::{Ext, K64, attached, fails, output};
use common::worker::Worker;
use common::{Group, MIB, world};
use mthp_ext::model::policy::{BUILT_IN, Policy};
use mthp_ext::model::rule::SCANS;

#[test]
#[ignore = "needs the lab's VM, booted with psi=0"]
fn policies_that_need_psi_are_refused() {
    world();
    for policy in ["default", "reactive"] {
        let (code, message) = fails(&["run", "--policy", policy]);
        assert_eq!(code, 6, "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
        assert!(
            message.contains("psi=1") && message.contains("headroom"),
            "{message}"
        );
        assert_eq!(attached(), 0);
    }
}

#[test]
#[ignore = "needs the lab's VM, booted with psi=0"]
fn the_headroom_policy_works() {
    world();
    let group = Group::new("limited");
    group.set("memory.max", "64M");
    let _ext = Ext::run(&group, &K64);
    let mut worker = Worker::new(&group);
    worker.fill(8 * MIB);
    assert_eq!(worker.huge(), 0);
}

#[test]
#[ignore = "needs the lab's VM, booted with psi=0"]
fn support_names_psi() {
    world();
    let out = output(&["support", "--json"]);
    assert_eq!(out.status.code(), Some(6));
    let report: serde_json::Value = common::schema::answer("support", &out.stdout);
    assert_eq!(report["verdict"], "psi");
    let unscanned = BUILT_IN
        .iter()
        .filter(|(name, text)| !Policy::parse(name, text).unwrap().rules.has(SCANS));
    let names: Vec<&str> = unscanned.map(|(name, _)| *name).collect();
    assert!(names.contains(&"headroom"), "{names:?}");
    assert_eq!(report["policies"], serde_json::json!(names));
}

// SPDX-License-Identifier: GPL-2.0-only
//! A policy that narrows nothing, and counts what it would.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed step fails the test"
)]

mod common;

use common::ext::{Ext, fails, output, status, status_of};
use common::worker::Worker;
use common::{Group, MIB, world};
use serde_json::Value;

const CAPPED: [&str; 4] = ["--policy", "fixed", "--cap", "64K"];

fn advised() -> Value {
    let out = output(&["advise", "--json"]);
    assert!(out.status.success(), "{out:?}");
    common::schema::answer("advise", &out.stdout)
}

#[test]
#[ignore = "needs the lab's VM"]
fn a_dry_run_narrows_nothing_and_counts_it() {
    world();
    let group = Group::new("dry");
    let _ext = Ext::run(&group, &[&CAPPED[..], &["--dry-run"]].concat());
    let mut worker = Worker::new(&group);
    worker.fill(16 * MIB);
    assert_eq!(worker.huge(), 16 * MIB, "as without a policy");
    let line = status_of(&group);
    assert_eq!(line["allowed"], "all", "{line}");
    assert_eq!(line["would_allow"], "64K-max", "{line}");
    let policy = &status()["policies"][0];
    assert_eq!(policy["dry_run"], true, "{policy}");
    let found = &advised()["dry_runs"][0]["cgroups"][0];
    assert_eq!(found["cgroup"], group.name(), "{found}");
    // The word that the advice has for --root.
    let word = found["cgroup"].as_str().unwrap();
    let (code, message) = fails(&["run", "--root", word]);
    assert_eq!(code, 8, "{message}");
    assert!(message.contains(group.path.to_str().unwrap()), "{message}");
    // Each of 8 folios of 2 MiB would have been one of 64 KiB.
    let count = found["narrowed"]["fault"].as_u64().unwrap();
    assert!(count >= 8, "{found}");
    assert_eq!(found["by_rule"]["cap"].as_u64(), Some(count), "{found}");
    let spared = found["spared_bytes"]["fault"].as_u64().unwrap();
    assert!(spared >= 8 * (2 * MIB - (64 << 10)), "{found}");
    let text = String::from_utf8(output(&["status"]).stdout).unwrap();
    assert!(text.contains("all (64K-max)"), "{text}");
    assert!(
        text.contains("policy fixed (dry run) attached to"),
        "{text}"
    );
}

/// What one in force takes away, one that runs dry does not give back.
#[test]
#[ignore = "needs the lab's VM"]
fn one_that_runs_dry_leaves_another_in_force() {
    world();
    let above = Group::new("above");
    let below = above.child("below");
    let _dry = Ext::run(&above, &["--policy", "fixed", "--cap", "4K", "--dry-run"]);
    let _real = Ext::run(&below, &CAPPED);
    let mut worker = Worker::new(&below);
    worker.fill(16 * MIB);
    assert_eq!(worker.huge(), 0, "64K is the most");
    let line = status_of(&below);
    assert_eq!(
        (&line["allowed"], &line["would_allow"]),
        (&"64K-max".into(), &"4K".into())
    );
}

#[test]
#[ignore = "needs the lab's VM"]
fn without_a_dry_run_there_is_nothing_to_advise() {
    world();
    let group = Group::new("real");
    let _ext = Ext::run(&group, &CAPPED);
    let (code, message) = fails(&["advise"]);
    assert_eq!(code, 2, "{message}");
    assert!(message.contains("run --dry-run"), "{message}");
}

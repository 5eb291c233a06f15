// SPDX-License-Identifier: GPL-2.0-only
//! Bad input and missing rights: one message, its own exit code, nothing changed.

mod common;

use std::os::unix::process::CommandExt;

use common::ext::{attached, command, fails, output, run_on};
use common::{Group, world};
use mthp_ext::model::policy::BUILT_IN;

/// One message, on one line, that begins with the program's name.
fn one_message(message: &str) {
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.starts_with("mthp_ext: "), "{message}");
}

#[test]
#[ignore = "needs the lab's VM"]
fn a_path_that_is_no_cgroup_is_refused() {
    world();
    for path in [
        "/tmp",
        "/proc",
        "/nowhere/at/all",
        "/sys/fs/cgroup/cgroup.procs",
        "/dev/null",
        "no-such-unit",
        "/nowhere/..",
        // Not the whole host.
        ".",
    ] {
        let (code, message) = fails(&["run", "--root", path]);
        assert_eq!(code, 3, "{path}: {message}");
        one_message(&message);
        assert!(message.contains(path), "{message}");
        assert_eq!(attached(), 0);
    }
}

#[test]
#[ignore = "needs the lab's VM"]
fn values_out_of_range_are_refused() {
    world();
    for args in [
        ["--threshold", "2s"],
        ["--threshold", "0ms"],
        ["--window", "11s"],
        ["--window", "10x"],
        ["--min-memory", "1+1"],
        ["--min-memory", "99999999999999999999M"],
        ["--cap", "63"],
        ["--room-factor", "0"],
        ["--policy", "magic"],
        ["--bind", "much"],
        ["--set", "window=1s"],
    ] {
        let (code, message) = fails(&["run", args[0], args[1]]);
        assert_eq!(code, 2, "{args:?}: {message}");
        assert!(
            message.contains(args[0].trim_start_matches('-')),
            "{message}"
        );
        assert_eq!(attached(), 0);
    }
}

/// Nobody would hold the policy.
#[test]
#[ignore = "needs the lab's VM"]
fn a_policy_is_handed_over_to_a_service_manager_only() {
    world();
    let (code, message) = fails(&["run", "--on-exit", "hand-over"]);
    assert_eq!(code, 2, "{message}");
    one_message(&message);
    assert!(message.contains("--on-exit keep"), "{message}");
    assert_eq!(attached(), 0);
}

#[test]
#[ignore = "needs the lab's VM"]
fn without_privilege_nothing_is_attached() {
    world();
    let group = Group::new("guarded");
    let path = group.path.to_str().unwrap();
    for args in [
        &["run", "--root", path][..],
        &["run", "--policy", "headroom"],
        &["status"],
    ] {
        let out = command(args).uid(65534).gid(65534).output().unwrap();
        let message = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(4), "{args:?}: {message}");
        one_message(&message);
        assert_eq!(attached(), 0);
    }
}

#[test]
#[ignore = "needs the lab's VM"]
fn support_without_privilege_says_only_that() {
    world();
    let out = command(&["support", "--json"])
        .uid(65534)
        .gid(65534)
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(4));
    let report: serde_json::Value = common::schema::answer("support", &out.stdout);
    assert_eq!(report["verdict"], "privilege");
    let features = report["features"].as_array().unwrap();
    for feature in features {
        assert_eq!(
            feature["present"],
            feature["name"] != "privilege",
            "{feature}"
        );
    }
}

#[test]
#[ignore = "needs the lab's VM"]
fn a_cgroup_without_memory_controller_is_refused() {
    world();
    let group = Group::new("upper");
    let child = group.child_without_memory("uncharged");
    let (code, message) = fails(&run_on(&child, &[]));
    assert_eq!(code, 7, "{message}");
    one_message(&message);
    assert!(message.contains("+memory"), "{message}");
    assert_eq!(attached(), 0);
}

#[test]
#[ignore = "needs the lab's VM"]
fn support_is_full_on_this_kernel() {
    world();
    let out = output(&["support", "--json"]);
    let report: serde_json::Value = common::schema::answer("support", &out.stdout);
    assert_eq!(out.status.code(), Some(0), "{report}");
    assert_eq!(report["verdict"], "full");
    assert_eq!(report["exit_code"], 0);
    let names: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
    assert_eq!(report["policies"], serde_json::json!(names));
    let text = String::from_utf8(output(&["support"]).stdout).unwrap();
    assert!(
        text.contains("yes  hook") && !text.contains(" NO "),
        "{text}"
    );
}

#[test]
#[ignore = "needs the lab's VM"]
fn support_changes_nothing() {
    world();
    let mounts = common::read("/proc/self/mounts");
    let links = attached();
    assert!(output(&["support"]).status.success());
    assert_eq!(common::read("/proc/self/mounts"), mounts);
    assert_eq!(attached(), links);
}

#[test]
#[ignore = "needs the lab's VM"]
fn help_and_version_end_well() {
    world();
    let help = output(&["run", "--help"]);
    assert!(help.status.success());
    let help = String::from_utf8(help.stdout).unwrap();
    for part in ["--root", "--policy", "--json", "Exit codes"] {
        assert!(help.contains(part), "{part}");
    }
    assert!(output(&["--version"]).status.success());
}

// SPDX-License-Identifier: GPL-2.0-only
//! The settings that a policy needs, on a real kernel: previewed, set, put back.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed step fails the test"
)]

mod common;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use serde_json::Value;

use common::ext::{command, fails, output};
use common::settings::{MIN_FREE, SAVED, booted, values};
use common::{THP, write};

fn json(args: &[&str]) -> Value {
    let out = output(args);
    assert!(out.status.success(), "{out:?}");
    let name = match args[1] {
        "undo" => "settings-undo",
        _ => "settings",
    };
    common::schema::answer(name, &out.stdout)
}

fn apply() -> Value {
    json(&["settings", "apply", "--json"])
}

fn undo() -> Value {
    json(&["settings", "undo", "--json"])
}

#[test]
#[ignore = "needs the lab's VM"]
fn what_is_applied_is_undone_exactly() {
    let _one = booted();
    let before = values();
    let preview = json(&["settings", "apply", "--dry-run", "--json"]);
    let (code, message) = fails(&["settings", "show"]);
    assert_eq!(code, 18, "{message}");
    assert!(message.contains("settings apply"), "{message}");
    assert_eq!(values(), before);

    let applied = apply();
    let after = values();
    for (was, is) in preview["baseline"]
        .as_array()
        .unwrap()
        .iter()
        .zip(applied["baseline"].as_array().unwrap())
    {
        let file = was["setting"].as_str().unwrap();
        if was["state"] == "differs" {
            assert_eq!(is["state"], "set");
            assert_eq!(is["before"], before[file].as_str(), "{file}");
            assert_eq!(after[file], was["wanted"].as_str().unwrap(), "{file}");
        } else {
            assert_eq!(after[file], before[file], "{file}");
        }
    }
    assert_eq!(after["enabled"], "always");
    assert_eq!(after["hugepages-16kB/enabled"], "inherit");
    // The kernel has raised it, and says so nowhere else.
    assert_eq!(applied["min_free_kbytes"]["before"], 2048);
    assert!(applied["min_free_kbytes"]["now"].as_u64().unwrap() > 2048);
    assert_eq!(output(&["settings", "show"]).status.code(), Some(0));

    // Once more: the first values are the true ones.
    apply();
    let undone = undo();
    assert_eq!(values(), before, "{undone}");
    assert_eq!(undo()["undone"], Value::Null);
    assert_eq!(values(), before);
}

fn left(answer: &Value) -> Vec<&str> {
    let lines = answer["baseline"].as_array().unwrap().iter();
    lines
        .filter(|line| line["state"] == "left")
        .map(|line| line["setting"].as_str().unwrap())
        .collect()
}

/// A service that applies at each start does not take it away again.
#[test]
#[ignore = "needs the lab's VM"]
fn what_was_changed_since_is_left_by_the_next_apply() {
    let _one = booted();
    // As some distributions boot: `apply` finds it as wanted.
    write(format!("{THP}/enabled"), "always");
    apply();
    let by_hand = ["hugepages-64kB/enabled", "enabled"];
    for file in by_hand {
        write(format!("{THP}/{file}"), "never");
    }
    let changed = values();
    for args in [
        &["settings", "apply", "--dry-run", "--json"][..],
        &["settings", "apply", "--json"],
        &["settings", "apply", "--json"],
    ] {
        assert_eq!(left(&json(args)), by_hand);
        assert_eq!(values(), changed);
    }
    let said = output(&["settings", "apply"]);
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(said.contains("\n2 left as it is"), "{said}");
    assert_eq!(output(&["settings", "show"]).status.code(), Some(18));

    // What it says to do.
    undo();
    assert_eq!(values()["enabled"], "never");
    assert!(left(&apply()).is_empty());
    assert_eq!(values()["enabled"], "always");
    assert_eq!(values()["hugepages-64kB/enabled"], "inherit");
    assert_eq!(output(&["settings", "show"]).status.code(), Some(0));
    undo();
    assert_eq!(values()["enabled"], "never");
}

#[test]
#[ignore = "needs the lab's VM"]
fn what_was_changed_by_hand_stays() {
    let _one = booted();
    let before = values();
    apply();
    write(format!("{THP}/hugepages-64kB/enabled"), "madvise");
    write(MIN_FREE, "3000");
    let undone = undo();
    let left: Vec<&str> = undone["undone"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["state"] == "left")
        .map(|one| one["setting"].as_str().unwrap())
        .collect();
    assert_eq!(left, ["hugepages-64kB/enabled", "vm.min_free_kbytes"]);
    let mut expected = before;
    expected.insert("hugepages-64kB/enabled".to_owned(), "madvise".to_owned());
    expected.insert("min_free".to_owned(), "3000".to_owned());
    assert_eq!(values(), expected);
}

/// Killed at moments spread over the time that it takes.
#[test]
#[ignore = "needs the lab's VM"]
fn killed_at_any_moment_it_can_be_undone() {
    let _one = booted();
    let before = values();
    let begun = std::time::Instant::now();
    apply();
    let whole = begun.elapsed();
    undo();
    assert_eq!(values(), before);
    let mut cut_short = 0;
    for part in 0..24u32 {
        let mut child = command(&["settings", "apply"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(whole * part / 20);
        child.kill().unwrap();
        child.wait().unwrap();
        cut_short += usize::from(values()["enabled"] == "madvise");
        undo();
        assert_eq!(values(), before, "killed after {part}/20");
    }
    assert!(cut_short > 0, "never killed before the end");
}

#[test]
#[ignore = "needs the lab's VM"]
fn with_a_full_disk_nothing_is_changed() {
    let _one = booted();
    let before = values();
    fs::create_dir_all(SAVED).unwrap();
    let none: Option<&str> = None;
    mount(
        Some("none"),
        SAVED,
        Some("tmpfs"),
        MsFlags::empty(),
        Some("size=4k"),
    )
    .unwrap();
    write(format!("{SAVED}/fill"), &"x".repeat(4096));
    let (code, message) = fails(&["settings", "apply"]);
    let left = Path::new(SAVED).join("saved.json").exists();
    umount2(SAVED, MntFlags::empty()).unwrap();
    assert_eq!(code, 1, "{message}");
    assert!(message.contains("No space left"), "{message}");
    assert_eq!(values(), before);
    assert!(!left);

    // /sys as a container has it.
    let read_only = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
    mount(Some(THP), THP, none, MsFlags::MS_BIND, none).unwrap();
    mount(none, THP, none, read_only, none).unwrap();
    let (code, message) = fails(&["settings", "apply"]);
    umount2(THP, MntFlags::empty()).unwrap();
    assert_eq!(code, 4, "{message}");
    assert!(message.contains("on the host"), "{message}");
    assert_eq!(values(), before);
    assert_eq!(undo()["undone"], Value::Null);
}

#[test]
#[ignore = "needs the lab's VM"]
fn without_privilege_it_shows_and_changes_nothing() {
    let _one = booted();
    let before = values();
    for (args, code) in [
        (&["settings", "show"][..], 18),
        (&["settings", "apply"], 4),
        (&["settings", "apply", "--dry-run"], 0),
    ] {
        let out = command(args).uid(65534).gid(65534).output().unwrap();
        assert_eq!(out.status.code(), Some(code), "{args:?}: {out:?}");
        assert_eq!(values(), before);
    }
}

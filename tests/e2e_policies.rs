// SPDX-License-Identifier: GPL-2.0-only
//! Policies as data: those built in, files, and an object of one's own.

mod common;

use common::ext::{Ext, K64, SELDOM, attached, fails, object_without, output, status, status_of};
use common::worker::Worker;
use common::{Group, MIB, world};
use mthp_ext::model::abi;
use mthp_ext::model::options::SCANS;
use mthp_ext::model::policy::{BUILT_IN, Policy};
use mthp_ext::model::rule::{Rule, Rules};

#[test]
#[ignore = "needs the lab's VM"]
fn every_policy_attaches_and_can_be_read() {
    world();
    for (name, text) in BUILT_IN {
        let group = Group::new("policy");
        let cap: &[&str] = if *name == "fixed" {
            &["--cap", "64K"]
        } else {
            &[]
        };
        let _ext = Ext::run(&group, &[&["--policy", name][..], cap].concat());
        let status = status();
        let policy = &status["policies"][0];
        assert_eq!(policy["policy"], *name);
        assert_eq!(policy["readable"], true);
        let rules = Policy::parse(name, text).unwrap().rules;
        assert_eq!(policy["rules"], serde_json::to_value(rules).unwrap());
        assert!(status_of(&group)["allowed"].is_string(), "{status}");
    }
}

/// Whatever a file names: each set of rules that is taken is one that the verifier takes.
#[test]
#[ignore = "needs the lab's VM"]
fn each_set_of_rules_loads_or_is_refused() {
    world();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("set.toml");
    let path = file.to_str().unwrap();
    let mut loaded = 0;
    for set in 1u32..1 << Rule::ALL.len() {
        let rules = Rules(set << 1);
        let names: Vec<String> = rules.iter().map(|r| format!("'{}'", r.name())).collect();
        let cap = match rules.has(Rule::Cap) {
            true => "cap = '64K'\n",
            false => "",
        };
        let list = names.join(", ");
        std::fs::write(&file, format!("about = 'a set'\nrules = [{list}]\n{cap}")).unwrap();
        let without_scan = (rules.has(Rule::Small) || rules.has(Rule::Sparse)) && !rules.has(SCANS);
        if without_scan {
            let (code, message) = fails(&["run", "--policy", path]);
            assert_eq!(code, 2, "{list}: {message}");
            continue;
        }
        let group = Group::new("set");
        let _ext = Ext::run(&group, &["--policy", path]);
        assert_eq!(
            status()["policies"][0]["rules"],
            serde_json::to_value(rules).unwrap()
        );
        loaded += 1;
    }
    assert_eq!(loaded, 19);
}

#[test]
#[ignore = "needs the lab's VM"]
fn a_file_is_a_policy_and_its_mistakes_have_a_line() {
    world();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("web.toml");
    let path = file.to_str().unwrap();
    let good = "about = 'for a test'\nrules = ['cap']\ncap = '64K'\n";
    std::fs::write(&file, good).unwrap();
    let by_directory = [
        "--policy-dir",
        dir.path().to_str().unwrap(),
        "--policy",
        "web",
    ];
    for args in [&["--policy", path][..], &by_directory] {
        let group = Group::new("web");
        let _ext = Ext::run(&group, args);
        assert_eq!(status()["policies"][0]["policy"], "web");
        let mut worker = Worker::new(&group);
        worker.fill(16 * MIB);
        assert_eq!(worker.huge(), 0);
        assert_eq!(status_of(&group)["why"], "cap");
    }
    std::fs::write(&file, format!("{good}magic = 1\n")).unwrap();
    let (code, message) = fails(&["run", "--policy", path]);
    assert_eq!(code, 2, "{message}");
    assert!(
        message.contains(&format!("{path}:4: 'magic' is no option")),
        "{message}"
    );
    assert_eq!(attached(), 0);
}

#[test]
#[ignore = "needs the lab's VM"]
fn an_object_of_ones_own_is_loaded_in_the_place_of_ours() {
    world();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("own.bpf.o");
    let path = file.to_str().unwrap();
    std::fs::write(&file, abi::OBJECT).unwrap();
    let group = Group::new("own");
    let ext = Ext::run(
        &group,
        &["--object", path, "--policy", "fixed", "--cap", "4K"],
    );
    let mut worker = Worker::new(&group);
    worker.fill(16 * MIB);
    assert_eq!(worker.huge(), 0);
    assert_eq!(status_of(&group)["why"], "cap");
    drop(ext);
    std::fs::write(&file, b"no object").unwrap();
    let (code, message) = fails(&["run", "--object", path]);
    assert_eq!(code, 2, "{message}");
    assert!(message.contains(path), "{message}");
    assert_eq!(attached(), 0);
}

/// It obeys no option, so none is taken; and nobody can tell what it decides.
#[test]
#[ignore = "needs the lab's VM"]
fn an_object_without_tunables_takes_no_options_and_cannot_be_read() {
    world();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("bare.bpf.o");
    let path = file.to_str().unwrap();
    std::fs::write(&file, object_without(&[abi::TUNABLES_MAP])).unwrap();
    let (code, message) = fails(&["run", "--object", path, "--cap", "4K"]);
    assert_eq!(code, 2, "{message}");
    assert!(message.contains("would not obey cap"), "{message}");
    assert_eq!(attached(), 0);
    // With one below that can be read.
    let group = Group::new("bare");
    let below = group.child("below");
    let _theirs = Ext::run(&group, &["--object", path]);
    assert_eq!(status()["policies"][0]["readable"], false);
    let _ours = Ext::run(&below, &["--policy", "headroom"]);
    for member in [&group, &below] {
        let line = status_of(member);
        assert_eq!(line["unreadable"].as_array().unwrap().len(), 1, "{line}");
    }
}

/// The built-in object, as if no memory were left to keep anything of a cgroup: what is kept is
/// looked up, and never made.
fn without_state() -> Vec<u8> {
    let mut object = abi::OBJECT.to_vec();
    // r4 = BPF_LOCAL_STORAGE_GET_F_CREATE; call bpf_cgrp_storage_get
    let made = [0xb7, 4, 0, 0, 1, 0, 0, 0, 0x85, 0, 0, 0, 210, 0, 0, 0];
    let all = object.windows(made.len()).enumerate();
    let places: Vec<usize> = all.filter(|(_, w)| *w == made).map(|(at, _)| at).collect();
    let [place] = places[..] else {
        panic!("made in several places, or in another way: {places:x?}");
    };
    object[place + 4] = 0;
    object
}

#[test]
#[ignore = "needs the lab's VM"]
fn without_memory_to_keep_anything_the_rules_hold() {
    world();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("stateless.bpf.o");
    let path = file.to_str().unwrap();
    std::fs::write(&file, without_state()).unwrap();
    let object = ["--object", path];
    {
        let group = Group::new("small");
        let _ext = Ext::run(&group, &[&object[..], &SELDOM].concat());
        let mut worker = Worker::new(&group);
        worker.fill(4 * MIB);
        assert_eq!(worker.huge(), 0, "it is small");
        let line = status_of(&group);
        assert_eq!(line["asked"]["fault"], 0, "nothing is kept of it: {line}");
        worker.fill(64 * MIB);
        let huge = worker.huge();
        assert!(huge >= 48 * MIB, "{huge}: and grows out of that");
    }
    let group = Group::new("limited");
    group.set("memory.max", "64M");
    let _ext = Ext::run(&group, &[&object[..], &K64].concat());
    let mut worker = Worker::new(&group);
    worker.fill(16 * MIB);
    assert_eq!(worker.huge(), 0, "it has a limit");
}

/// `status` asks the program that decides: for a cgroup that nothing is kept of, too.
#[test]
#[ignore = "needs the lab's VM"]
fn a_cgroup_that_nobody_has_met_is_explained_like_a_new_one() {
    world();
    let group = Group::new("unmet");
    group.set("memory.max", "64M");
    let leaf = group.child("leaf");
    let args = ["--policy", "headroom", "--limit-share", "0"];
    let _ext = Ext::run(&group, &args);
    let line = status_of(&leaf);
    assert_eq!(line["why"], "room", "{line}");
    assert_eq!(line["level"]["cgroup"], group.name(), "{line}");
    assert_eq!(line["level"]["bytes"], 64 * MIB, "{line}");
    assert_eq!(line["asked"]["fault"], 0, "{line}");
}

#[test]
#[ignore = "needs the lab's VM"]
fn policies_and_options_are_listed_without_a_kernel_in_question() {
    for args in [&["policies", "--json"][..], &["options", "--json"]] {
        let out = output(args);
        assert!(out.status.success(), "{out:?}");
        let all: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        assert!(all.as_array().unwrap().len() >= BUILT_IN.len(), "{args:?}");
    }
}

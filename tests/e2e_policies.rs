// SPDX-License-Identifier: GPL-2.0-only
//! Policies as data: those built in, files, and an object of one's own.

mod common;

use std::path::Path;

use common::ext::{Ext, K64, SELDOM, attached, fails, output, status, status_of};
use common::own::{OwnFile, object_without, object_without_state};
use common::worker::Worker;
use common::{Group, MIB, world};
use mthp_ext::model::abi;
use mthp_ext::model::policy::{BUILT_IN, Policy};
use mthp_ext::model::rule::SCANS;
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
    let file = OwnFile::new("set.toml", "");
    let path = file.path();
    let mut loaded = 0;
    for set in 1u32..1 << Rule::ALL.len() {
        let rules = Rules(set << 1);
        let names: Vec<String> = rules.iter().map(|r| format!("'{}'", r.name())).collect();
        let cap = match rules.has(Rule::Cap) {
            true => "cap = '64K'\n",
            false => "",
        };
        let list = names.join(", ");
        file.write(format!("about = 'a set'\nrules = [{list}]\n{cap}"));
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
    let good = "about = 'for a test'\nrules = ['cap']\ncap = '64K'\n";
    let file = OwnFile::new("web.toml", good);
    let path = file.path();
    let by_directory = ["--policy-dir", file.dir(), "--policy", "web"];
    for args in [&["--policy", path][..], &by_directory] {
        let group = Group::new("web");
        let _ext = Ext::run(&group, args);
        let policy = &status()["policies"][0];
        assert_eq!(policy["policy"], "web");
        let own = (&policy["own_file"], &policy["own_object"]);
        assert_eq!(own, (&true.into(), &false.into()));
        let mut worker = Worker::new(&group);
        worker.fill(16 * MIB);
        assert_eq!(worker.huge(), 0);
        assert_eq!(status_of(&group)["why"], "cap");
    }
    file.write(format!("{good}magic = 1\n"));
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
    let file = OwnFile::new("own.bpf.o", abi::OBJECT);
    let path = file.path();
    let group = Group::new("own");
    let ext = Ext::run(
        &group,
        &["--object", path, "--policy", "fixed", "--cap", "4K"],
    );
    let mut worker = Worker::new(&group);
    worker.fill(16 * MIB);
    assert_eq!(worker.huge(), 0);
    assert_eq!(status_of(&group)["why"], "cap");
    let policy = &status()["policies"][0];
    let own = (&policy["own_file"], &policy["own_object"]);
    assert_eq!(own, (&false.into(), &true.into()));
    drop(ext);
    file.write("no object");
    let (code, message) = fails(&["run", "--object", path]);
    assert_eq!(code, 2, "{message}");
    assert!(message.contains(path), "{message}");
    assert_eq!(attached(), 0);
}

/// A default of the host's own, until it is dropped.
struct UsualDefault(&'static Path);

impl UsualDefault {
    fn new(text: &str) -> Self {
        let file = Path::new("/etc/mthp_ext/policies/default.toml");
        let made = std::fs::create_dir_all("/etc/mthp_ext/policies");
        let written = made.and_then(|()| std::fs::write(file, text));
        assert!(written.is_ok(), "{written:?}");
        UsualDefault(file)
    }
}

impl Drop for UsualDefault {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0);
    }
}

/// It obeys no option, so none is taken; and nobody can tell what it decides.
#[test]
#[ignore = "needs the lab's VM"]
fn an_object_without_tunables_takes_no_options_and_cannot_be_read() {
    world();
    let file = OwnFile::new("bare.bpf.o", object_without(&[abi::CONSTANTS_MAP]));
    let path = file.path();
    let (code, message) = fails(&["run", "--object", path, "--cap", "4K"]);
    assert_eq!(code, 2, "{message}");
    assert!(message.contains("would not obey cap"), "{message}");
    assert_eq!(attached(), 0);
    // What it does not obey may be as it likes.
    {
        let _broken = UsualDefault::new("broken");
        let group = Group::new("alone");
        let _ext = Ext::run(&group, &["--object", path]);
        let (code, message) = fails(&["run"]);
        assert_eq!(code, 2, "{message}");
        assert!(message.contains("default.toml:1"), "{message}");
    }
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

#[test]
#[ignore = "needs the lab's VM"]
fn without_memory_to_keep_anything_the_rules_hold() {
    world();
    let file = OwnFile::new("stateless.bpf.o", object_without_state());
    let object = ["--object", file.path()];
    {
        let group = Group::new("small");
        let _ext = Ext::run(&group, &[&object[..], &SELDOM].concat());
        let mut worker = Worker::new(&group);
        worker.fill(4 * MIB);
        assert_eq!(worker.huge(), 0, "it is small");
        let line = status_of(&group);
        assert_eq!(
            line["requests"]["fault"], 0,
            "nothing is kept of it: {line}"
        );
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
    assert_eq!(line["requests"]["fault"], 0, "{line}");
}

/// Policy and options are checked, and nothing done.
#[test]
#[ignore = "needs the lab's VM"]
fn a_check_attaches_nothing() {
    world();
    let args = ["run", "--check", "--policy", "fixed", "--cap", "64K"];
    let out = output(&args);
    assert!(out.status.success(), "{out:?}");
    let text = String::from_utf8(out.stdout).unwrap();
    assert_eq!(
        text,
        "policy fixed: nothing is attached\n  on-exit: detach (default)\n  cap:       at most 64K\n"
    );
    let out = output(&[&args[..], &["--json"]].concat());
    let answer: serde_json::Value = common::schema::answer("run-check", &out.stdout);
    assert_eq!(answer["settings"]["cap_bytes"]["fault"], 64 << 10);
    assert_eq!(attached(), 0);
    let (code, message) = fails(&["run", "--check", "--policy", "fixed"]);
    assert_eq!(code, 2, "{message}");
}

#[test]
#[ignore = "needs the lab's VM"]
fn policies_and_options_are_listed_without_a_kernel_in_question() {
    for args in [&["policies", "--json"][..], &["options", "--json"]] {
        let out = output(args);
        assert!(out.status.success(), "{out:?}");
        let all: serde_json::Value = common::schema::answer(args[0], &out.stdout);
        assert!(all.as_array().unwrap().len() >= BUILT_IN.len(), "{args:?}");
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! One attachment that serves several policies: who has which, and from when on.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed step fails the test"
)]

mod common;

use std::fs;
use std::os::unix::fs::MetadataExt;

use common::ext::status_of;
use common::worker::Worker;
use common::{Group, MIB, world};
use mthp_ext::kernel::carrier::Carrier;
use mthp_ext::kernel::cgroup::Cgroup;
use mthp_ext::kernel::load::Loaded;
use mthp_ext::kernel::programs::Programs;
use mthp_ext::kernel::takeover::Stay;
use mthp_ext::kernel::thp;
use mthp_ext::model::abi::Tunables;
use mthp_ext::model::given::Values;
use mthp_ext::model::policy::Policy;
use mthp_ext::model::profiles::{self, Profiles};
use mthp_ext::model::resolve;

/// A policy that leaves no more than this size.
fn cap(name: &str, size: &str) -> Tunables {
    let text = format!("about = 'a test'\nrules = ['cap']\ncap = '{size}'\n");
    let policy = Policy::parse(name, &text).unwrap();
    resolve::tunables(&policy, &Values::default(), &thp::sizes_of_this_machine()).unwrap()
}

fn id(group: &Group) -> u64 {
    fs::metadata(&group.path).unwrap().ino()
}

/// An attachment, and what it serves.
struct Serving {
    loaded: Loaded,
    profiles: Profiles,
}

impl Serving {
    fn new(root: &Group, first: &Tunables) -> Self {
        let carrier = Carrier::probe().unwrap();
        let profiles = Profiles::new(first, 0);
        let load = profiles::load(&profiles, first);
        let loaded = Loaded::attach(
            Programs::read(None).unwrap(),
            (&load, &profiles),
            Some(&mut |_| Ok(())),
            &carrier,
            &Cgroup::open(&root.path).unwrap(),
            Stay::default(),
        );
        Serving {
            loaded: loaded.unwrap(),
            profiles,
        }
    }

    fn add(&mut self, one: &Tunables) -> u32 {
        let ids = self.profiles.add(&[*one]).unwrap();
        self.loaded.assign.set_profiles(&self.profiles).unwrap();
        ids[0]
    }

    fn only(&mut self, ids: &[u32]) {
        self.profiles.keep(&ids.iter().copied().collect());
        self.loaded.assign.set_profiles(&self.profiles).unwrap();
    }

    fn assign(&self, group: &Group, profile: u32) {
        assert!(self.loaded.assign.assign(id(group), profile).unwrap());
    }
}

/// Does a process in it get huge pages now?
fn huge(group: &Group) -> bool {
    let mut worker = Worker::new(group);
    worker.fill(4 * MIB);
    worker.huge() > 0
}

#[test]
#[ignore = "needs the lab's VM"]
fn two_policies_decide_side_by_side_and_status_names_them() {
    world();
    let root = Group::new("sides");
    let (a, b, plain) = (root.child("a"), root.child("b"), root.child("plain"));
    let mut serving = Serving::new(&root, &cap("first", "2M"));
    let small = serving.add(&cap("tiny", "4K"));
    serving.assign(&a, small);
    assert_eq!((huge(&a), huge(&b), huge(&plain)), (false, true, true));
    let line = status_of(&a);
    assert_eq!(
        (&line["allowed"], &line["why"]),
        (&"4K".into(), &"cap".into())
    );
    assert_eq!(line["profiles"], serde_json::json!(["tiny"]));
    assert_eq!(line["reasons"][0], "cap: at most 4K", "by its own values");
    assert_eq!(status_of(&b)["profiles"], serde_json::json!([]));
    // The other way round, while they run.
    serving.assign(&b, small);
    serving.assign(&a, 0);
    assert_eq!((huge(&a), huge(&b), huge(&plain)), (true, false, true));
}

#[test]
#[ignore = "needs the lab's VM"]
fn children_follow_the_nearest_that_was_assigned_one() {
    world();
    let root = Group::new("follow");
    let mut serving = Serving::new(&root, &cap("first", "2M"));
    let small = serving.add(&cap("tiny", "4K"));
    let upper = root.child("upper");
    let early = upper.child("early");
    assert!(huge(&early), "it has its state now, and slot 0");
    serving.assign(&upper, small);
    assert!(!huge(&early), "what was taken over is looked up again");
    let late = upper.child("late");
    let deep = late.child("deep");
    assert!(!huge(&deep), "made later, and its parent asked nothing");
    // One of its own counts for it and those below it.
    let large = serving.add(&cap("large", "2M"));
    serving.assign(&late, large);
    assert!(huge(&deep));
    assert!(!huge(&early));
    // What is above does not reach it then.
    serving.assign(&upper, 0);
    serving.assign(&upper, small);
    assert!(huge(&deep) && !huge(&early));
    serving.assign(&late, 0);
    assert!(!huge(&deep));
    assert_eq!(status_of(&deep)["profiles"], serde_json::json!(["tiny"]));
}

#[test]
#[ignore = "needs the lab's VM"]
fn a_slot_given_again_is_not_mistaken_for_the_old_one() {
    world();
    let root = Group::new("again");
    let group = root.child("group");
    let mut serving = Serving::new(&root, &cap("first", "2M"));
    let small = serving.add(&cap("tiny", "4K"));
    serving.assign(&group, small);
    assert!(!huge(&group));
    // Its policy goes, and the slot gets another one that it was never assigned.
    serving.only(&[]);
    let other = serving.add(&cap("other", "4K"));
    assert_eq!(small % 64, other % 64);
    assert!(huge(&group), "slot 0 decides, not what is in its old slot");
    assert_eq!(status_of(&group)["profiles"], serde_json::json!([]));
    serving.assign(&group, other);
    assert!(!huge(&group));
}

/// Nothing is narrowed by a profile without rules; and what all have in common is a union.
#[test]
#[ignore = "needs the lab's VM"]
fn off_is_a_profile_without_rules() {
    world();
    let root = Group::new("offs");
    let (off, on) = (root.child("off"), root.child("on"));
    let mut serving = Serving::new(&root, &cap("first", "4K"));
    let none = serving.add(&Tunables {
        rules: 0,
        ..cap("off", "4K")
    });
    serving.assign(&off, none);
    assert_eq!((huge(&off), huge(&on)), (true, false));
    assert_eq!(status_of(&off)["why"], "none");
}

#[test]
#[ignore = "needs the lab's VM"]
fn who_is_not_there_is_assigned_nothing() {
    world();
    let root = Group::new("gone");
    let serving = Serving::new(&root, &cap("first", "4K"));
    let group = root.child("group");
    let gone = id(&group);
    group.remove();
    assert!(!serving.loaded.assign.assign(gone, 64).unwrap());
}

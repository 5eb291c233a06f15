// SPDX-License-Identifier: GPL-2.0-only

use super::*;
use crate::commands::lookup::tests::nowhere;
use crate::model::abi::{self, NO_CAP};
use crate::model::config::Config;
use crate::model::orders::X86;
use crate::model::reason::Reason;
use crate::model::rule::{Rule, Rules};

/// A configuration, and cgroups that need not be there.
struct World {
    plan: Plan,
    root: Cgroup,
    directory: Directory,
    xattrs: Xattrs,
    profiles: Vec<Tunables>,
    _dir: tempfile::TempDir,
}

fn xattr(value: &[u8], others: Option<&str>) -> Option<Xattr> {
    Some(Xattr {
        value: Some(value.to_owned()),
        others: others.map(str::to_owned),
    })
}

impl World {
    fn new(text: &str) -> Self {
        let (dir, directory) = nowhere();
        let mut world = World {
            plan: plan(text),
            root: Cgroup {
                path: "/c".into(),
                mount: "/c".into(),
                id: 1,
            },
            directory,
            xattrs: Xattrs::default(),
            profiles: Vec::new(),
            _dir: dir,
        };
        world.profiles.push(world.plan.tunables);
        world
    }

    fn take(&mut self, path: &str, found: Option<Xattr>) -> Option<Change> {
        let ground = Ground {
            plan: &self.plan,
            directory: &self.directory,
            sizes: &X86,
            root: &self.root,
        };
        let profiles = &mut self.profiles;
        let mut place = |wanted: &Tunables| {
            profiles.push(*wanted);
            Ok(profiles.len() as u32 - 1)
        };
        let id = path.len() as u64;
        let path = Path::new("/c").join(path);
        self.xattrs.take(&path, id, found, ground, &mut place)
    }

    /// Of root alone.
    fn says(&mut self, path: &str, value: &str) -> String {
        let change = self.take(path, xattr(value.as_bytes(), None));
        change.map_or_else(String::new, |change| change.text)
    }

    /// Of somebody else.
    fn asks(&mut self, path: &str, value: &str) -> String {
        let change = self.take(path, xattr(value.as_bytes(), Some("uid 7 owns it")));
        change.map_or_else(String::new, |change| change.text)
    }

    fn values(&self, path: &str) -> Option<Tunables> {
        let id = self.xattrs.profile(&Path::new("/c").join(path))?;
        Some(self.profiles[id as usize])
    }

    /// Name of its policy, and the cap of its faults in orders.
    fn of(&self, path: &str) -> Option<(String, u32)> {
        let values = self.values(path)?;
        let cap = values.cap[Reason::Fault as usize];
        Some((abi::text(&values.policy), cap))
    }
}

fn plan(text: &str) -> Plan {
    let mut config = Config::default();
    config.add(Path::new("/e/config.toml"), text);
    let directory = Directory {
        policy_dir: Some("/proc/self/fdinfo".into()),
    };
    let find = |name: &str| lookup::policy(name, &directory).map_err(|e| e.to_string());
    let (plan, problems) = crate::model::plan::plan(&config, &find, &X86).unwrap();
    assert_eq!(problems, []);
    plan
}

const TEXT: &str = "policy = 'default'
    [policies.web]
    base = 'default'
    cap = '64K'
    [[override]]
    cgroups = 'web*'
    policy = 'web'
    [[override]]
    cgroups = 'free'
    policy = 'off'";

fn is(name: &str, cap: u32) -> Option<(String, u32)> {
    Some((name.to_owned(), cap))
}

#[test]
fn it_comes_before_the_patterns_and_changes_what_they_give() {
    let mut world = World::new(TEXT);
    let said = world.says("db", "policy=database");
    assert_eq!(
        said,
        "/db: policy database, as its user.mthp_ext says (policy=database)"
    );
    assert_eq!(world.of("db").unwrap().0, "database");
    // A policy of the configuration's own.
    world.says("x", "policy=web min-memory=1M");
    assert_eq!(world.of("x"), is("web+min-memory", 4));
    assert_eq!(world.values("x").unwrap().min_memory, 1 << 20);
    // Without a policy it changes that of the pattern, of the next one above, or of the root.
    world.says("web1", "cap=2M");
    assert_eq!(world.of("web1"), is("web+cap", 9));
    world.says("db/a/b", "min-memory=1M");
    assert_eq!(world.of("db/a/b").unwrap().0, "database+min-memory");
    world.says("y", "cap=16K");
    assert_eq!(world.of("y"), is("default+cap", 2));
    world.says("y/z", "cap=32K");
    assert_eq!(world.of("y/z"), is("default+cap", 3));
    for value in ["off", "policy=off"] {
        world.says("web2", value);
        assert_eq!(world.values("web2").unwrap().rules, 0);
    }
    let own = world.values("db").unwrap().own.0;
    assert_ne!(own & abi::Own::MTHP_OWN_XATTR.0, 0);
}

#[test]
fn a_change_is_said_once() {
    let mut world = World::new(TEXT);
    assert_ne!(world.says("db", "cap=64K"), "");
    assert_eq!(world.says("db", "cap=64K"), "");
    world.xattrs.forget_made();
    assert_eq!(world.says("db", "cap=64K"), "", "a reload changes nothing");
    assert_ne!(world.says("db", "cap=32K"), "");
    let gone = world.take("db", None).unwrap();
    let text = "/db: its user.mthp_ext is gone: policy default";
    assert_eq!((gone.text.as_str(), gone.in_force), (text, true));
    assert_eq!(world.take("db", None), None);
    assert_eq!(world.values("db").map(|_| ()), None);
    // Another cgroup by the same name.
    world.says("ab", "off");
    world.xattrs.keep(|id| id != 2);
    assert_eq!(world.take("ab", None), None);
}

#[test]
fn a_bad_one_is_left_out_and_says_why() {
    let mut world = World::new(TEXT);
    for (value, part) in [
        (&b""[..], "needs a policy, or values"),
        (b" \n ", "needs a policy, or values"),
        (b"\xff\xfe", "no text (UTF-8)"),
        (b"policy=nobody", "there is no policy 'nobody'"),
        (b"policy=a\0b", "a\\x00b"),
        (b"database", "'database' is neither KEY=VALUE nor off"),
        (b"magic=1", "'magic' is no option"),
        (b"max-order=4", "the largest folio is cap, and a size"),
        (b"cap=5K", "cap has the size '5K'"),
        (b"cap=4K cap=2M", "cap is there twice"),
        (b"off cap=4K", "cap has no effect where the policy is"),
        (b"cgroups=a", "this is for one cgroup"),
        (b"rules=cap", "an override has no rules"),
        (b"window=2s", "window is 1s for all cgroups"),
        (b"policy=fixed", "has no cap"),
        (b"policy=/no/such.toml", "cannot read the policy"),
        (b"\x1b[2J=1\x07", "\\x1b[2J"),
    ] {
        let change = world.take("a", xattr(value, None)).unwrap();
        assert!(!change.in_force, "{}", change.text);
        assert!(change.text.contains(part), "{part}: {}", change.text);
        assert!(change.text.contains("is left out: "), "{}", change.text);
        assert!(!change.text.contains(char::is_control), "{}", change.text);
        assert_eq!(world.of("a"), None);
        world.take("a", None);
    }
    let long = Some(Xattr {
        value: None,
        others: None,
    });
    let change = world.take("a", long).unwrap();
    assert!(
        change.text.contains("it may have 512 bytes"),
        "{}",
        change.text
    );
    // Several lines are as good as one.
    assert_ne!(world.says("a", "policy=web\n\tcap=32K\n"), "");
    assert_eq!(world.of("a"), is("web+cap", 3));
}

/// Who may have more is said by root: in no way does another owner get more than he would have
/// had without.
#[test]
fn others_than_root_may_only_lower() {
    let mut world = World::new(TEXT);
    let said = world.asks("web1", "cap=16K");
    assert_eq!(
        said,
        "/web1: policy web+cap, as its user.mthp_ext says (cap=16K), which may only lower: \
         uid 7 owns it"
    );
    assert_eq!(world.of("web1"), is("web+cap", 2));
    world.asks("web1", "cap=fault=2M,swapin=4K");
    let values = world.values("web1").unwrap();
    assert_eq!(values.cap[Reason::Fault as usize], 4, "as without");
    assert_eq!(values.cap[Reason::Swapin as usize], 0);
    assert_eq!(values.cap[Reason::Khugepaged as usize], 4, "as without");
    for value in [
        "off",
        "policy=database",
        "policy=web",
        "policy=/etc/shadow.toml",
        "cap=4K min-memory=1M",
        "min-memory=1G",
        "bind=advised",
        "cap=none",
        "cap=64K",
        "cap=2M",
    ] {
        let said = world.asks("web1", value);
        assert!(said.contains("it may only lower"), "{said}");
        assert!(said.ends_with(", as uid 7 owns it"), "{said}");
        assert_eq!(world.of("web1"), None, "{value}");
        // A file is not even looked for.
        assert!(!said.contains("cannot read"), "{said}");
    }
    // Where nothing is narrowed, the cap is all that is.
    world.asks("free", "cap=64K");
    let values = world.values("free").unwrap();
    assert_eq!(Rules(values.rules).iter().collect::<Vec<_>>(), [Rule::Cap]);
    assert_eq!(values.cap[Reason::Fault as usize], 4);
    // A policy without a cap gets the rule for it.
    world.says("room", "policy=headroom");
    world.asks("room/a", "cap=fault=64K");
    let values = world.values("room/a").unwrap();
    let rules: Vec<Rule> = Rules(values.rules).iter().collect();
    assert_eq!(rules, [Rule::Room, Rule::Cap]);
    assert_eq!(values.cap[Reason::Swapin as usize], NO_CAP);
    // Below what lowers, it is lowered from there.
    world.asks("web1", "cap=16K");
    world.asks("web1/a", "cap=32K");
    assert_eq!(world.of("web1/a"), None);
    world.asks("web1/a", "cap=8K");
    assert_eq!(world.of("web1/a"), is("web+cap", 1));
}

#[test]
fn others_than_root_do_not_take_all_places() {
    let mut world = World::new(TEXT);
    let mut left_out = 0;
    for i in 0..100u32 {
        let sizes = ["4K", "8K", "16K", "32K"];
        let value = format!(
            "cap=fault={},swapin={},reclaim={}",
            sizes[i as usize % 4],
            sizes[i as usize / 4 % 4],
            sizes[i as usize / 16 % 4]
        );
        let said = world.asks(&format!("u{i}"), &value);
        left_out += usize::from(said.contains("may not have more together"));
    }
    assert_eq!(world.profiles.len(), 1 + LENT);
    assert!(left_out > 60, "{left_out}");
    // Root has its places still, and they have what others had.
    assert!(world.says("r", "cap=4K").contains("policy default+cap"));
    world.xattrs.keep(|id| id == 1);
    assert!(
        world
            .asks("v", "cap=fault=4K")
            .contains("policy default+cap")
    );
}

/// The policies that cgroups say are each made once.
#[test]
fn what_is_the_same_is_one_profile() {
    let mut world = World::new(TEXT);
    for i in 0..10 {
        world.says(&format!("s{i}"), "policy=database");
        world.says(&format!("web{i}"), "cap=32K");
    }
    assert_eq!(world.profiles.len(), 3);
    assert_eq!(world.xattrs.in_force(), 20);
    let each = world.xattrs.each();
    assert_eq!(each.len(), 2);
    assert_eq!(each[0].1.len(), 10);
    assert!(!world.xattrs.any_below(Path::new("/c/s1")));
    world.says("s1/x", "cap=4K");
    assert!(world.xattrs.any_below(Path::new("/c/s1")));
}

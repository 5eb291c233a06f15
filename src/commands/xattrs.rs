// SPDX-License-Identifier: GPL-2.0-only
//! The overrides that cgroups have of their own, in an extended attribute (`user.mthp_ext`), and
//! what they come to beside a configuration.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::lookup::{self, Directory};
use crate::kernel::cgroup::Cgroup;
use crate::kernel::xattr::{LONGEST, Xattr};
use crate::model::abi::Tunables;
use crate::model::config::{self, XATTR};
use crate::model::orders::Sizes;
use crate::model::plan::{Plan, Planned, Resolved};
use crate::model::shown;

/// Different policies that others than root may have come to be: who has many cgroups must not
/// take all places.
const LENT: usize = 16;

/// What they stand on.
#[derive(Clone, Copy)]
pub struct Ground<'a> {
    /// The configuration.
    pub plan: &'a Plan,
    /// Where policies are.
    pub directory: &'a Directory,
    /// What this machine has.
    pub sizes: &'a Sizes,
    /// Nothing above it counts.
    pub root: &'a Cgroup,
}

/// Finds the place of a policy's values, a profile's id.
///
/// # Errors
/// Why there can be none.
pub type Place<'a> = &'a mut dyn FnMut(&Tunables) -> Result<u32, String>;

/// What one override comes to, for all cgroups that say the same on the same ground.
pub struct Made {
    /// Of policies as they are compared: those of the configuration come first.
    number: usize,
    /// As the cgroups say it.
    pub xattr: Xattr,
    /// The policy with its profile, or why it is left out.
    pub result: Result<(Planned, u32), String>,
}

impl Made {
    /// In words: what is in force, or why it is left out.
    pub fn text(&self) -> String {
        let said = self.xattr.shown();
        match (&self.result, &self.xattr.others) {
            (Ok((planned, _)), None) => {
                let name = &planned.resolved.policy.name;
                format!("policy {name}, as its {XATTR} says ({said})")
            }
            (Ok((planned, _)), Some(others)) => {
                let name = &planned.resolved.policy.name;
                format!(
                    "policy {name}, as its {XATTR} says ({said}), which may only lower: {others}"
                )
            }
            (Err(what), None) => format!("its {XATTR} ({said}) is left out: {what}"),
            (Err(what), Some(others)) => {
                format!("its {XATTR} ({said}) is left out: {what}, as {others}")
            }
        }
    }
}

/// One cgroup's.
struct One {
    id: u64,
    made: Rc<Made>,
}

/// A cgroup has one now, another one, or none any more.
#[derive(Debug, PartialEq, Eq)]
pub struct Change {
    /// Its name.
    pub cgroup: String,
    /// What it says is in force, or it says nothing.
    pub in_force: bool,
    /// In words.
    pub text: String,
}

impl Change {
    /// What it says is not known.
    pub fn unread(path: &Path, root: &Cgroup, in_force: bool, why: &io::Error) -> Self {
        let cgroup = name_of(path, root);
        let now = match in_force {
            true => "what was in force stays",
            false => "nothing of it is in force",
        };
        Change {
            text: format!("{cgroup}: its {XATTR} cannot be read ({why}): {now}"),
            cgroup,
            in_force,
        }
    }
}

/// A cgroup's name as it is shown.
fn name_of(path: &Path, root: &Cgroup) -> String {
    match path.strip_prefix(&root.mount) {
        Ok(path) => format!("/{}", shown::path(path)),
        Err(_) => shown::path(path),
    }
}

/// All of them.
#[derive(Default)]
pub struct Xattrs {
    of: BTreeMap<PathBuf, One>,
    made: HashMap<(usize, Xattr), Rc<Made>>,
    count: usize,
}

impl Xattrs {
    /// How many there are that are in force.
    pub fn in_force(&self) -> usize {
        let ok = |one: &&One| one.made.result.is_ok();
        self.of.values().filter(ok).count()
    }

    /// Profiles that cgroups have by them.
    pub fn profiles(&self) -> impl Iterator<Item = u32> + '_ {
        let of = |one: &One| one.made.result.as_ref().ok().map(|(_, id)| *id);
        self.of.values().filter_map(of)
    }

    /// The profile that a cgroup has by its own.
    pub fn profile(&self, path: &Path) -> Option<u32> {
        let (_, id) = self.of.get(path)?.made.result.as_ref().ok()?;
        Some(*id)
    }

    /// Whose it is that a path has one: cgroups come and go by one path.
    pub fn id(&self, path: &Path) -> Option<u64> {
        Some(self.of.get(path)?.id)
    }

    /// What one comes to, in words.
    pub fn text(&self, path: &Path) -> Option<String> {
        Some(self.of.get(path)?.made.text())
    }

    /// Each that is different, with the cgroups that have it.
    pub fn each(&self) -> Vec<(&Made, Vec<&Path>)> {
        let mut all: Vec<(&Rc<Made>, Vec<&Path>)> = Vec::new();
        let mut places: HashMap<*const Made, usize> = HashMap::new();
        for (path, one) in &self.of {
            let place = *places.entry(Rc::as_ptr(&one.made)).or_insert_with(|| {
                all.push((&one.made, Vec::new()));
                all.len() - 1
            });
            all[place].1.push(path);
        }
        all.into_iter()
            .map(|(made, paths)| (made.as_ref(), paths))
            .collect()
    }

    /// Has a cgroup below this one any?
    pub fn any_below(&self, path: &Path) -> bool {
        let from = (std::ops::Bound::Excluded(path), std::ops::Bound::Unbounded);
        let next = self.of.range::<Path, _>(from).next();
        next.is_some_and(|(next, _)| next.starts_with(path))
    }

    /// Forgets those of cgroups that are not there any more.
    pub fn keep(&mut self, is_there: impl Fn(u64) -> bool) {
        self.of.retain(|_, one| is_there(one.id));
        self.forget_unused();
    }

    /// Forgets what no cgroup says any more: its profile may be given away.
    pub fn forget_unused(&mut self) {
        self.made.retain(|_, made| Rc::strong_count(made) > 1);
    }

    /// The files that they name are read again, and their places found again.
    pub fn forget_made(&mut self) {
        self.made.clear();
    }

    /// Takes in what a cgroup says now.  Those above it must have been taken in before.
    pub fn take(
        &mut self,
        path: &Path,
        id: u64,
        found: Option<Xattr>,
        ground: Ground<'_>,
        place: Place<'_>,
    ) -> Option<Change> {
        let before = self.of.remove(path).filter(|one| one.id == id);
        let cgroup = name_of(path, ground.root);
        let Some(xattr) = found else {
            before?;
            let (_, policy, _) = self.without(path, ground);
            let name = &policy.policy.name;
            return Some(Change {
                text: format!("{cgroup}: its {XATTR} is gone: policy {name}"),
                cgroup,
                in_force: true,
            });
        };
        let made = self.make(path, xattr, ground, place);
        let text = made.text();
        let in_force = made.result.is_ok();
        let same = before.is_some_and(|one| one.made.text() == text);
        self.of.insert(path.to_owned(), One { id, made });
        (!same).then(|| Change {
            text: format!("{cgroup}: {text}"),
            cgroup,
            in_force,
        })
    }

    /// The policy that a cgroup would have without its own: by a pattern of the configuration, or
    /// that of the nearest one above.  Each policy has a number.
    fn without<'a>(
        &'a self,
        path: &Path,
        ground: Ground<'a>,
    ) -> (usize, &'a Resolved, &'a Tunables) {
        let plan = ground.plan;
        let within = |path: &&Path| path.starts_with(&ground.root.path);
        for (up, path) in path.ancestors().take_while(within).enumerate() {
            let own = self.of.get(path).filter(|_| up > 0);
            if let Some((made, Ok((planned, _)))) = own.map(|one| (&one.made, &one.made.result)) {
                return (made.number, &planned.resolved, &planned.tunables);
            }
            let relative = path.strip_prefix(&ground.root.mount).unwrap_or(path);
            if let Some(index) = plan.index_of(relative) {
                let planned = &plan.overrides[index];
                return (1 + index, &planned.resolved, &planned.tunables);
            }
        }
        (0, &plan.root, &plan.tunables)
    }

    fn make(
        &mut self,
        path: &Path,
        xattr: Xattr,
        ground: Ground<'_>,
        place: Place<'_>,
    ) -> Rc<Made> {
        let (base, resolved, tunables) = self.without(path, ground);
        let key = (base, xattr);
        if let Some(made) = self.made.get(&key) {
            return made.clone();
        }
        let xattr = &key.1;
        let planned = || {
            let value = xattr.value.as_ref();
            let value = value.ok_or_else(|| format!("it may have {LONGEST} bytes"))?;
            let one = config::of_xattr(value)?;
            if xattr.others.is_none() {
                let find =
                    |name: &str| lookup::policy(name, ground.directory).map_err(|e| e.to_string());
                return ground.plan.with_xattr(resolved, &one, &find, ground.sizes);
            }
            let lent = self.made.values().filter(|made| {
                made.xattr.others.is_some() && made.result.is_ok() && Rc::strong_count(made) > 1
            });
            match lent.count() {
                LENT.. => Err(format!(
                    "cgroups that others than root may write have {LENT} different policies \
                     already, and may not have more together"
                )),
                _ => ground.plan.lowered(resolved, tunables, &one),
            }
        };
        let result = planned().and_then(|planned| {
            let id = place(&planned.tunables)?;
            Ok((planned, id))
        });
        self.count += 1;
        let made = Rc::new(Made {
            number: ground.plan.overrides.len() + self.count,
            xattr: key.1.clone(),
            result: result.map_err(|what: String| shown::shown(what.as_bytes())),
        });
        self.made.insert(key, made.clone());
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
            let dir = tempfile::tempdir().unwrap();
            let mut world = World {
                plan: plan(text),
                root: Cgroup {
                    path: "/c".into(),
                    mount: "/c".into(),
                    id: 1,
                },
                directory: Directory {
                    policy_dir: Some(dir.path().to_owned()),
                },
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
}

// SPDX-License-Identifier: GPL-2.0-only
//! The configuration of a running policy: gives cgroups the profiles of their overrides, those
//! made later too, and takes a new configuration over while requests go on.  Overrides are those
//! of the configuration, and those that cgroups have of their own.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::config;
use super::lookup::Directory;
use super::seen::{Seen, Way};
use super::xattrs::{Change, Ground, Xattrs};
use crate::errors::{Context, Error, Result};
use crate::kernel::assign::Assign;
use crate::kernel::cgroup::{self, Cgroup, Names};
use crate::kernel::process;
use crate::kernel::xattr::{self, Xattr};
use crate::model::abi::{self, Bind, Load, PROFILES, Tunables};
use crate::model::config::{Problem, XATTR};
use crate::model::ending::{Here, ON_EXIT, OnExit};
use crate::model::orders::Sizes;
use crate::model::plan::Plan;
use crate::model::policy::Policy;
use crate::model::profiles::{self, Profiles};
use crate::model::rule::SCANS;
use crate::model::rule::{Rule, Rules};

/// Cgroups that have gone are forgotten once there may be this many of them.
const GONE: usize = 1024;

/// Cgroups that cannot be read and have nothing in force are named up to this number: who makes
/// them in a loop fills no log.
const TOLD: usize = 16;

/// Which cgroups are asked for what they say for themselves.
#[derive(Clone, Copy)]
enum Asked {
    All,
    New,
    /// Whatever they say, it does not count.
    None,
}

/// What the start has found, and no reload changes.
pub struct Start {
    /// The kernel asks at reclaim.
    pub takes_back: bool,
    /// Why nothing that needs PSI can be had; `None`: it can.
    pub without_psi: Option<String>,
    /// The same, if that is because nobody knows whether PSI is on.
    pub unread_psi: Option<Problem>,
    /// What the command line says.
    pub on_exit: Option<OnExit>,
    /// What decides about that besides.
    pub here: Here,
}

/// A configuration at work.
pub struct Assigner {
    file: PathBuf,
    directory: Directory,
    sizes: Sizes,
    names: Rc<Names>,
    root: Cgroup,
    start: Start,
    plan: Plan,
    profiles: Profiles,
    /// Ids of the root's profile, then of each override's.
    ids: Vec<u32>,
    /// What cgroups were assigned.
    assigned: HashMap<u64, u32>,
    /// What the patterns give those that were looked at: a cgroup keeps its name, so that they are
    /// asked about it once.
    matched: HashMap<u64, u32>,
    /// What cgroups have of their own.
    xattrs: Xattrs,
    /// Changes of that nobody has heard of yet.
    changes: Vec<Change>,
    /// Cgroups that were asked for it.
    seen: Seen,
    /// Those of them of which that could not be read, and why.
    unread: HashMap<u64, String>,
    /// Those of them when all were last looked at.
    looked_at: usize,
    /// Not all profiles are written yet.
    unwritten: bool,
    /// The programs can have these rules and no others.
    rules: Rules,
    /// And what these bind besides.
    bind: u32,
    /// Parts that are left out.
    pub problems: Vec<Problem>,
}

/// What has come of an override that a cgroup has of its own.
pub struct Looked {
    /// In words.
    pub text: String,
    /// 0: it is in force, or there is none; else the exit code for the reason.
    pub code: u8,
}

impl Looked {
    fn unread(why: &str) -> Self {
        let missing = Error::NoPrivilege {
            what: String::new(),
        };
        Looked {
            text: format!(
                "its {XATTR} cannot be read ({why}), so nothing new is in force: the daemon needs the right to look \
                 into the cgroup's directory, and those above it"
            ),
            code: missing.code(),
        }
    }
}

impl Start {
    /// In words.
    fn without_psi(&self) -> &str {
        self.without_psi.as_deref().unwrap_or_default()
    }
}

/// Rules that are asked no scan for.
fn without_scan(rule: &Rule) -> bool {
    matches!(rule, Rule::Room | Rule::Cap)
}

/// The values of the root and of each override.
fn wanted(plan: &Plan, takes_back: u32) -> Vec<Tunables> {
    let overrides = plan.overrides.iter().map(|one| one.tunables);
    let all = [plan.tunables].into_iter().chain(overrides);
    all.map(|one| Tunables { takes_back, ..one }).collect()
}

impl Assigner {
    /// The configuration of `file`, as it was planned, for `root`.  `found`: policies of the user's,
    /// the kernel's sizes, and where cgroups are.
    ///
    /// # Errors
    /// [`Error::Config`].
    pub fn new(
        file: PathBuf,
        (directory, sizes, names): (&Directory, &Sizes, &Rc<Names>),
        root: &Cgroup,
        (plan, mut problems): (Plan, Vec<Problem>),
        start: Start,
    ) -> Result<Self> {
        let all = wanted(&plan, start.takes_back.into());
        let mut profiles = Profiles::new(&all[0], process::moment());
        let ids = profiles.add(&all).ok_or_else(|| too_many(&file))?;
        let scans = start.without_psi.is_none();
        problems.extend(start.unread_psi.clone());
        let possible = |rule: &Rule| scans || without_scan(rule);
        Ok(Assigner {
            file,
            directory: directory.clone(),
            sizes: *sizes,
            names: names.clone(),
            root: root.clone(),
            start,
            rules: Rule::ALL.into_iter().filter(possible).collect(),
            bind: profiles::bind(&profiles).0,
            plan,
            profiles,
            ids,
            assigned: HashMap::new(),
            matched: HashMap::new(),
            xattrs: Xattrs::default(),
            changes: Vec::new(),
            seen: Seen::default(),
            unread: HashMap::new(),
            looked_at: 0,
            unwritten: false,
            problems,
        })
    }

    /// The policy of the root that is in force.
    pub fn policy(&self) -> &Policy {
        &self.plan.root.policy
    }

    /// Its profiles.
    pub fn profiles(&self) -> &Profiles {
        &self.profiles
    }

    /// The policies of the configuration, and of what cgroups have of their own.  The first slot may
    /// hold one of before.
    pub fn policies(&self) -> impl Iterator<Item = &Tunables> {
        let own = self.ids.iter().copied().chain(self.xattrs.profiles());
        let own: HashSet<u32> = own.collect();
        self.profiles
            .iter()
            .filter(move |one| own.contains(&one.id))
    }

    /// A policy in force that has the rule which brings the scan, by name.
    pub fn needs_scan(&self) -> Option<String> {
        let held = self.held();
        let mut all = self.profiles.iter().filter(|one| held.contains(&one.id));
        let one = all.find(|one| Rules(one.rules).has(SCANS))?;
        Some(abi::text(&one.policy))
    }

    /// The profiles that the configuration and cgroups have.
    fn held(&self) -> HashSet<u32> {
        let cgroups = self.assigned.values().copied();
        let own = self.ids.iter().copied().chain(self.xattrs.profiles());
        own.chain(cgroups).collect()
    }

    /// PSI is off from now on: what needs it is refused.
    pub fn without_psi(&mut self) {
        self.start.without_psi = Some("was switched off since the start".to_owned());
        // Or what had a place before would be taken for possible.
        self.xattrs.forget_unused();
        self.rules = self.rules.iter().filter(without_scan).collect();
    }

    /// What the programs are loaded for: whatever a later configuration may want.
    pub fn load(&self) -> Load {
        let any = Tunables {
            rules: self.rules.0,
            // What only some bind besides takes the verifier twice the time.
            bind: Bind(0),
            ..*self.profiles.of(0)
        };
        Load {
            announces: 1,
            ..profiles::load(&self.profiles, &any)
        }
    }

    /// Takes in what a cgroup says for itself.  True if that has changed.
    fn look(&mut self, path: &Path, id: u64) -> bool {
        match xattr::read(path) {
            Ok(found) => {
                self.unread.remove(&id);
                self.take(path, id, found)
            }
            // What is in force stays, and it is asked again when others are.
            Err(e) => {
                // Of another cgroup that had this path nothing does.
                let other = self.xattrs.id(path).is_some_and(|known| known != id);
                let changed = other && self.take(path, id, None);
                let in_force = self.xattrs.profile(path).is_some();
                let told = in_force || self.unread.len() < TOLD;
                if self.unread.insert(id, e.to_string()).is_none() && told {
                    let change = Change::unread(path, &self.root, in_force, &e);
                    self.changes.push(change);
                }
                changed
            }
        }
    }

    /// What is lost of those that cannot be read again, once nothing of their own is in force.
    fn unreadable_in_force(&self) -> Vec<Change> {
        let all = self.xattrs.each().into_iter().flat_map(|(_, paths)| paths);
        let lost = all.filter_map(|path| {
            let why = self.unread.get(&self.xattrs.id(path)?)?;
            self.xattrs.profile(path)?;
            let why = io::Error::other(why.clone());
            Some(Change::unread(path, &self.root, false, &why))
        });
        lost.collect()
    }

    /// Is it to be asked what it says for itself?
    fn is_new(&self, id: u64) -> bool {
        !self.seen.contains(id) || self.unread.contains_key(&id)
    }

    fn take(&mut self, path: &Path, id: u64, found: Option<Xattr>) -> bool {
        // As nearly all do.
        if found.is_none() && self.xattrs.text(path).is_none() {
            return false;
        }
        let ground = Ground {
            plan: &self.plan,
            directory: &self.directory,
            sizes: &self.sizes,
            root: &self.root,
        };
        let mut held = HashSet::new();
        if self.profiles.iter().count() == PROFILES {
            self.xattrs.forget_unused();
            held = self.held();
        }
        let (profiles, unwritten) = (&mut self.profiles, &mut self.unwritten);
        let (rules, bind, takes_back) = (self.rules.0, self.bind, self.start.takes_back.into());
        let without_psi = self.start.without_psi();
        let mut place = |wanted: &Tunables| {
            if wanted.rules & !rules != 0 {
                return Err(format!("it has rules that need PSI, which {without_psi}"));
            }
            if wanted.bind.0 & !bind != 0 {
                return Err(
                    "it binds what no policy of the configuration did at the start: use bind \
                     there, and restart mthp_ext"
                        .to_owned(),
                );
            }
            let wanted = [Tunables {
                takes_back,
                ..*wanted
            }];
            *unwritten = true;
            let ids = profiles.add(&wanted).or_else(|| {
                profiles.keep(&held);
                profiles.add(&wanted)
            });
            match ids.as_deref() {
                Some([id]) => Ok(*id),
                _ => Err(format!(
                    "all {PROFILES} places for policies are taken: use fewer"
                )),
            }
        };
        let change = self.xattrs.take(path, id, found, ground, &mut place);
        let changed = change.is_some();
        self.changes.extend(change);
        changed
    }

    /// What cgroups have come to say since it was asked last.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// The profile that a cgroup is to be assigned; 0: none.
    fn wanted(&mut self, path: &Path, id: u64) -> u32 {
        if let Some(profile) = self.xattrs.profile(path) {
            return profile;
        }
        if let Some(profile) = self.matched.get(&id) {
            return *profile;
        }
        let profile = self.matching(path);
        self.matched.insert(id, profile);
        profile
    }

    /// That of the patterns; 0: none.
    fn matching(&self, path: &Path) -> u32 {
        let Ok(relative) = path.strip_prefix(&self.root.mount) else {
            return 0;
        };
        match self.plan.index_of(relative) {
            Some(index) => self.ids[index + 1],
            None if path == self.root.path => self.ids[0],
            None => 0,
        }
    }

    /// Looks at every cgroup, and at what each says for itself.
    ///
    /// # Errors
    /// If the kernel refuses an assignment.
    pub fn assign_all(&mut self, to: &Assign) -> Result<()> {
        self.visit(to, Asked::All)
    }

    /// Looks at every cgroup, and at what some of them say for themselves.
    fn visit(&mut self, to: &Assign, asked: Asked) -> Result<()> {
        let mut found = Vec::new();
        let (mut there, mut way) = (Seen::default(), Way::default());
        let root = self.root.path.clone();
        // Those above come first.
        let unlisted = cgroup::walk(&root, &mut |path, id| {
            there.insert(id, way.enter(path, id));
            match asked {
                Asked::All => drop(self.look(path, id)),
                Asked::New if self.is_new(id) => drop(self.look(path, id)),
                Asked::New => {}
                Asked::None => drop(self.take(path, id, None)),
            }
            found.push((id, self.wanted(path, id)));
        });
        self.write(to)?;
        if !unlisted.is_empty() {
            // The kernel has the profiles of those below that are there.
            let closed = unlisted.iter().map(|one| one.nearest);
            let names = &self.names;
            there.keep_below(&self.seen, &closed.collect(), |id| {
                matches!(names.at_once(id), Ok(None))
            });
        }
        self.assigned.retain(|id, _| there.contains(*id));
        self.xattrs.keep(|id| there.contains(id));
        self.unread.retain(|id, _| there.contains(*id));
        self.matched.retain(|id, _| there.contains(*id));
        for (id, wanted) in found {
            self.settle(to, id, wanted)?;
        }
        self.seen = there;
        self.looked_at = self.seen.count();
        Ok(())
    }

    /// Gives a cgroup its profile, if it has another one.
    fn settle(&mut self, to: &Assign, id: u64, wanted: u32) -> Result<()> {
        let before = self.assigned.get(&id).copied().unwrap_or_default();
        if before == wanted {
            return Ok(());
        }
        // At once, so that an error later leaves what is true.
        match assign(to, id, wanted)? && wanted != 0 {
            true => self.assigned.insert(id, wanted),
            false => self.assigned.remove(&id),
        };
        Ok(())
    }

    /// Hands new profiles over before anybody gets them.
    fn write(&mut self, to: &Assign) -> Result<()> {
        if self.unwritten {
            set_profiles(to, &self.profiles)?;
            self.unwritten = false;
        }
        Ok(())
    }

    /// Looks at cgroups that the programs met for the first time, and at those above them, which
    /// may have asked nothing themselves.
    ///
    /// # Errors
    /// If the kernel refuses an assignment.
    pub fn met(&mut self, to: &Assign, ids: &[u64]) -> Result<()> {
        for &id in ids {
            match self.names.at_once(id) {
                Ok(Some(path)) => self.look_along(to, &path)?,
                // It has gone.
                Ok(None) => {}
                // Nobody may be asked.
                Err(_) => return self.visit(to, Asked::New),
            }
        }
        if self.seen.count() > 2 * self.looked_at + GONE {
            self.visit(to, Asked::New)?;
        }
        Ok(())
    }

    /// Looks at a cgroup and those above it, as far as they are new.
    fn look_along(&mut self, to: &Assign, path: &Path) -> Result<()> {
        let root = self.root.path.clone();
        let mut line: Vec<&Path> = path.ancestors().collect();
        // The root itself was there before all others.
        line.retain(|path| path.starts_with(&root) && *path != root);
        let mut above = self.root.id;
        for path in line.into_iter().rev() {
            let Ok(Some(id)) = cgroup::id_of(path) else {
                continue;
            };
            let changed = self.is_new(id) && self.look(path, id);
            self.seen.insert(id, above);
            above = id;
            if changed && self.xattrs.any_below(path) {
                // What they say builds on this.
                return self.visit(to, Asked::All);
            }
            let wanted = self.wanted(path, id);
            self.write(to)?;
            self.settle(to, id, wanted)?;
        }
        Ok(())
    }

    /// A cgroup has come to say something else for itself: takes that over.  Returns in words what
    /// has come of it; `None` if the cgroup is not one of these.
    ///
    /// # Errors
    /// If the kernel refuses an assignment.
    pub fn asked(&mut self, to: &Assign, path: &Path) -> Result<Option<Looked>> {
        if !path.starts_with(&self.root.path) {
            return Ok(None);
        }
        let id = match cgroup::id_of(path) {
            Ok(Some(id)) => id,
            Ok(None) => return Ok(None),
            Err(e) => return Ok(Some(Looked::unread(&e.to_string()))),
        };
        if path == self.root.path {
            self.visit(to, Asked::All)?;
        } else {
            self.seen.remove(id);
            self.look_along(to, path)?;
        }
        if let Some(why) = self.unread.get(&id) {
            return Ok(Some(Looked::unread(why)));
        }
        let in_force = self.xattrs.profile(path).is_some();
        Ok(Some(match self.xattrs.text(path) {
            Some(text) if in_force => Looked { text, code: 0 },
            Some(text) => Looked {
                text,
                code: Error::Usage(String::new()).code(),
            },
            None => Looked {
                text: format!("it has no {XATTR}"),
                code: 0,
            },
        }))
    }

    /// Takes over what the files say by now.  New policies get slots that nobody has, cgroups
    /// change over one by one, and only then the old ones go: nobody is without a policy.
    /// Returns [`Self::text`].
    ///
    /// # Errors
    /// [`Error::Config`] if it cannot be used: all stays as it was.
    pub fn reload(&mut self, to: &Assign) -> Result<String> {
        let made = config::plan(&self.file, &self.directory, &self.sizes);
        let (plan, problems) = made.map_err(|problems| config::unusable(&self.file, &problems))?;
        let refused = |what: &str| Error::Config {
            file: self.file.clone(),
            what: format!("{what}, which a policy in force cannot change: restart mthp_ext"),
        };
        let all = wanted(&plan, self.start.takes_back.into());
        if plan.tunables.window_ns != self.plan.tunables.window_ns {
            return Err(refused("it has another window"));
        }
        let ending = |plan: &Plan| plan.ending(self.start.on_exit).come_to(self.start.here);
        let (now, then) = (ending(&self.plan), ending(&plan));
        if now.on_exit != then.on_exit {
            return Err(refused(&format!(
                "it has another {ON_EXIT}, {then} instead of {now}"
            )));
        }
        if all.iter().any(|one| one.rules & !self.rules.0 != 0) {
            return Err(refused(&format!(
                "it has rules that need PSI, which {}",
                self.start.without_psi()
            )));
        }
        if all.iter().any(|one| one.bind.0 & !self.bind != 0) {
            return Err(refused(
                "it binds what none of the policies at the start did",
            ));
        }
        let mut profiles = self.profiles.clone();
        let ids = match profiles.add(&all) {
            Some(ids) => ids,
            None => {
                // What cgroups have of their own gives way, until the configuration has its places.
                let lost = self.unreadable_in_force();
                self.visit(to, Asked::None)?;
                profiles = self.profiles.clone();
                profiles.keep(&self.ids.iter().copied().collect());
                let ids = profiles.add(&all);
                if ids.is_none() {
                    self.assign_all(to)?;
                }
                self.changes.clear();
                self.changes.extend(lost);
                ids.ok_or_else(|| too_many(&self.file))?
            }
        };
        set_profiles(to, &profiles)?;
        self.profiles = profiles;
        let plan = std::mem::replace(&mut self.plan, plan);
        let ids = std::mem::replace(&mut self.ids, ids);
        self.matched.clear();
        self.xattrs.forget_made();
        if let Err(error) = self.assign_all(to) {
            // Those that have changed over change back, as far as the kernel lets them.
            self.plan = plan;
            self.ids = ids;
            self.matched.clear();
            self.xattrs.forget_made();
            let _ = self.assign_all(to);
            return Err(error);
        }
        self.problems = problems;
        self.problems.extend(self.start.unread_psi.clone());
        let held = self.ids.iter().copied().chain(self.xattrs.profiles());
        self.profiles.keep(&held.collect());
        set_profiles(to, &self.profiles)?;
        Ok(self.text())
    }

    /// "configuration FILE: 2 overrides for 3 cgroups", and what is left out.
    pub fn text(&self) -> String {
        let own = self.assigned.len().saturating_sub(1);
        let left_out = match self.problems.as_slice() {
            [] => String::new(),
            [one] => format!("; left out: {one}"),
            [one, rest @ ..] => format!("; left out: {one}, and {} more", rest.len()),
        };
        let xattrs = match self.xattrs.in_force() {
            0 => String::new(),
            some => format!(" ({some} of them by {XATTR})"),
        };
        format!(
            "configuration {} in force: {} overrides, for {own} cgroups{xattrs}{left_out}",
            self.file.display(),
            self.plan.overrides.len()
        )
    }
}

fn set_profiles(to: &Assign, profiles: &Profiles) -> Result<()> {
    let set = to.set_profiles(profiles);
    set.context(|| "writing the profiles".to_owned())
}

fn assign(to: &Assign, id: u64, profile: u32) -> Result<bool> {
    to.assign(id, profile)
        .context(|| "assigning a policy to a cgroup".to_owned())
}

fn too_many(file: &Path) -> Error {
    Error::Config {
        file: file.to_owned(),
        what: format!(
            "it takes more policies than there are places ({} at a time, those that a reload \
             replaces included): use fewer different ones, or restart mthp_ext",
            PROFILES
        ),
    }
}

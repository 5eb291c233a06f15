// SPDX-License-Identifier: GPL-2.0-only
//! The configuration of a running policy: gives cgroups the profiles of their overrides, those
//! made later too, and takes a new configuration over while requests go on.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use super::cli::Directory;
use super::config;
use crate::errors::{Context, Error, Result};
use crate::kernel::cgroup::{self, Cgroup};
use crate::kernel::load::Loaded;
use crate::kernel::process;
use crate::model::abi::{Bind, Load, Tunables};
use crate::model::config::Problem;
use crate::model::options::SCANS;
use crate::model::orders::Sizes;
use crate::model::plan::Plan;
use crate::model::policy::Policy;
use crate::model::profiles::{self, Profiles};
use crate::model::rule::{Rule, Rules};

/// Cgroups that have gone are forgotten once there may be this many of them.
const GONE: usize = 1024;

/// A configuration at work.
pub struct Assigner {
    file: PathBuf,
    directory: Directory,
    sizes: Sizes,
    root: Cgroup,
    takes_back: u32,
    plan: Plan,
    profiles: Profiles,
    /// Ids of the root's profile, then of each override's.
    ids: Vec<u32>,
    /// What cgroups were assigned.
    assigned: HashMap<u64, u32>,
    /// Those of them when all were last looked at.
    looked_at: usize,
    /// The programs can have these rules and no others.
    rules: Rules,
    /// And what these bind besides.
    bind: u32,
    /// Parts that are left out.
    pub problems: Vec<Problem>,
}

/// The values of the root and of each override.
fn wanted(plan: &Plan, takes_back: u32) -> Vec<Tunables> {
    let overrides = plan.overrides.iter().map(|one| one.tunables);
    let all = [plan.tunables].into_iter().chain(overrides);
    all.map(|one| Tunables { takes_back, ..one }).collect()
}

impl Assigner {
    /// The configuration of `file`, as it was planned, for `root`.  `scans`: whether there can be
    /// scans, without which some rules cannot be.
    ///
    /// # Errors
    /// [`Error::Config`].
    pub fn new(
        file: PathBuf,
        directory: &Directory,
        sizes: &Sizes,
        root: &Cgroup,
        (plan, problems): (Plan, Vec<Problem>),
        (takes_back, scans): (bool, bool),
    ) -> Result<Self> {
        let all = wanted(&plan, takes_back.into());
        let mut profiles = Profiles::new(&all[0], process::moment());
        let ids = profiles.add(&all).ok_or_else(|| too_many(&file))?;
        let possible = |rule: &Rule| scans || matches!(rule, Rule::Room | Rule::Cap);
        Ok(Assigner {
            file,
            directory: directory.clone(),
            sizes: *sizes,
            root: root.clone(),
            takes_back: takes_back.into(),
            rules: Rule::ALL.into_iter().filter(possible).collect(),
            bind: all.iter().fold(0, |bind, one| bind | one.bind.0),
            plan,
            profiles,
            ids,
            assigned: HashMap::new(),
            looked_at: 0,
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

    /// Has any of its policies the rule that brings the scan?
    pub fn needs_scan(&self) -> bool {
        profiles::rules(&self.profiles).has(SCANS)
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

    /// The profile that a cgroup is to be assigned; 0: none.
    fn wanted(&self, path: &Path) -> u32 {
        let Ok(relative) = path.strip_prefix(&self.root.mount) else {
            return 0;
        };
        match self.plan.index_of(relative) {
            Some(index) => self.ids[index + 1],
            None if path == self.root.path => self.ids[0],
            None => 0,
        }
    }

    /// Looks at every cgroup.
    ///
    /// # Errors
    /// If the kernel refuses an assignment.
    pub fn assign_all(&mut self, loaded: &Loaded) -> Result<()> {
        let mut found = Vec::new();
        cgroup::walk(&self.root.path, &mut |path, id| {
            found.push((id, self.wanted(path)));
        });
        let there: HashSet<u64> = found.iter().map(|(id, _)| *id).collect();
        self.assigned.retain(|id, _| there.contains(id));
        for (id, wanted) in found {
            let before = self.assigned.get(&id).copied().unwrap_or_default();
            if before == wanted {
                continue;
            }
            // At once, so that an error later leaves what is true.
            match assign(loaded, id, wanted)? && wanted != 0 {
                true => self.assigned.insert(id, wanted),
                false => self.assigned.remove(&id),
            };
        }
        self.looked_at = self.assigned.len();
        Ok(())
    }

    /// Looks at cgroups that the programs met for the first time, and at those above them, which
    /// may have asked nothing themselves.
    ///
    /// # Errors
    /// If the kernel refuses an assignment.
    pub fn met(&mut self, loaded: &Loaded, ids: &[u64]) -> Result<()> {
        for &id in ids {
            let path = match cgroup::by_id(&self.root.mount, id) {
                Ok(path) => path,
                // A service without that right looks at all of them.
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                    return self.assign_all(loaded);
                }
                // It has gone.
                Err(_) => continue,
            };
            let mut line: Vec<&Path> = path.ancestors().collect();
            line.retain(|path| path.starts_with(&self.root.path));
            for path in line.into_iter().rev() {
                let wanted = self.wanted(path);
                let Some(id) = (wanted != 0).then(|| cgroup::id_of(path)).flatten() else {
                    continue;
                };
                if self.assigned.get(&id) != Some(&wanted) && assign(loaded, id, wanted)? {
                    self.assigned.insert(id, wanted);
                }
            }
        }
        if self.assigned.len() > 2 * self.looked_at + GONE {
            self.assign_all(loaded)?;
        }
        Ok(())
    }

    /// Takes over what the files say by now.  New policies get slots that nobody has, cgroups
    /// change over one by one, and only then the old ones go: nobody is without a policy.
    /// Returns [`Self::text`].
    ///
    /// # Errors
    /// [`Error::Config`] if it cannot be used: all stays as it was.
    pub fn reload(&mut self, loaded: &Loaded) -> Result<String> {
        let made = config::plan(&self.file, &self.directory, &self.sizes);
        let (plan, problems) = made.map_err(|problems| config::unusable(&self.file, &problems))?;
        let refused = |what: &str| Error::Config {
            file: self.file.clone(),
            what: format!("{what}, which a policy in force cannot change: restart mthp_ext"),
        };
        let all = wanted(&plan, self.takes_back);
        if plan.tunables.window_ns != self.plan.tunables.window_ns {
            return Err(refused("it has another window"));
        }
        if all.iter().any(|one| one.rules & !self.rules.0 != 0) {
            return Err(refused(
                "it has rules that need PSI, which was off at the start",
            ));
        }
        if all.iter().any(|one| one.bind.0 & !self.bind != 0) {
            return Err(refused(
                "it binds what none of the policies at the start did",
            ));
        }
        let mut profiles = self.profiles.clone();
        let ids = profiles.add(&all).ok_or_else(|| too_many(&self.file))?;
        let set = |profiles: &Profiles| {
            let set = loaded.set_profiles(profiles);
            set.context(|| "writing the profiles".to_owned())
        };
        set(&profiles)?;
        self.profiles = profiles;
        let plan = std::mem::replace(&mut self.plan, plan);
        let ids = std::mem::replace(&mut self.ids, ids);
        if let Err(error) = self.assign_all(loaded) {
            // Those that have changed over change back, as far as the kernel lets them.
            self.plan = plan;
            self.ids = ids;
            let _ = self.assign_all(loaded);
            return Err(error);
        }
        self.problems = problems;
        self.profiles.keep(&self.ids);
        set(&self.profiles)?;
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
        format!(
            "configuration {} in force: {} overrides, for {own} cgroups{left_out}",
            self.file.display(),
            self.plan.overrides.len()
        )
    }
}

fn assign(loaded: &Loaded, id: u64, profile: u32) -> Result<bool> {
    loaded
        .assign(id, profile)
        .context(|| "assigning a policy to a cgroup".to_owned())
}

fn too_many(file: &Path) -> Error {
    Error::Config {
        file: file.to_owned(),
        what: format!(
            "it takes more policies than there are places ({} at a time, those that a reload \
             replaces included): use fewer different ones, or restart mthp_ext",
            crate::model::abi::PROFILES
        ),
    }
}

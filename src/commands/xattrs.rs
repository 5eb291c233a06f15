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

/// Windows after which all cgroups are asked again for their overrides: who writes one by himself
/// reports it to nobody.
pub const ROUND: u32 = 60;

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
pub struct OfXattr {
    /// Of policies as they are compared: those of the configuration come first.
    number: usize,
    /// As the cgroups say it.
    pub xattr: Xattr,
    /// The policy with its profile, or why it is left out.
    pub result: Result<(Planned, u32), String>,
}

impl OfXattr {
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
    made: Rc<OfXattr>,
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
    made: HashMap<(usize, Xattr), Rc<OfXattr>>,
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
    pub fn each(&self) -> Vec<(&OfXattr, Vec<&Path>)> {
        let mut all: Vec<(&Rc<OfXattr>, Vec<&Path>)> = Vec::new();
        let mut places: HashMap<*const OfXattr, usize> = HashMap::new();
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
    ) -> Rc<OfXattr> {
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
        let made = Rc::new(OfXattr {
            number: ground.plan.overrides.len() + self.count,
            xattr: key.1.clone(),
            result: result.map_err(|what: String| shown::shown(what.as_bytes())),
        });
        self.made.insert(key, made.clone());
        made
    }
}

#[cfg(test)]
mod tests;

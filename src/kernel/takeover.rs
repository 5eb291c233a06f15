// SPDX-License-Identifier: GPL-2.0-only
//! Taking over: what the daemon before this one has left of a cgroup's policy, pinned or with the
//! service manager, and how the next one goes on with it.  What was left stays in force until all
//! is ready: each cgroup has its own policy, verdicts are known and as fresh as a scan makes them.

use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use libbpf_rs::{MapCore, MapFlags, Object};

use super::cgroup::{self, Cgroup};
use super::handed::Left;
use super::kept::{self, Place};
use super::object::map;
use super::programs::{Programs, load_error};
use super::{carrier, clock};
use crate::errors::{Context, Error, Result};
use crate::model::abi::{self, Kept, Load};
use crate::model::rule::{Rules, SCANS};
use crate::model::shown;

/// What is to become of a policy, and what there is of one before it.
#[derive(Default)]
pub struct Stay {
    /// It is to be pinned, and so to outlive this process.
    pub keep: bool,
    /// It is to be handed over: [`super::load::Loaded::hand_over`].
    pub hand_over: bool,
    /// What was handed to this process.
    pub left: Option<Left>,
}

/// What there is of the cgroup's policy before the next one is loaded, and what is to come of that.
pub(super) struct Before {
    keep: bool,
    hand_over: bool,
    place: Option<Place>,
    link: Option<OwnedFd>,
    storage: Option<OwnedFd>,
}

impl Before {
    /// Looks for what was left; with `keep` there is a place, with or without a policy.
    ///
    /// # Errors
    /// Those of [`Place::make`]; [`Error::Usage`] for a dry run, which would end what is kept.
    pub fn find(root: &Cgroup, stay: Stay, dry_run: bool) -> Result<Self> {
        Place::sweep();
        let Stay {
            keep,
            hand_over,
            left,
        } = stay;
        let place = match keep {
            true => Some(Place::make(root)?),
            false => Place::find(root)?,
        };
        let pinned = place.as_ref().map(Place::link).transpose()?.flatten();
        if dry_run && pinned.is_some() {
            return Err(Error::Usage(format!(
                "{}: a policy is kept here, and a dry run would end it: run `mthp_ext detach` first, \
                 or choose another --root.",
                shown::path(&root.path)
            )));
        }
        let (handed, handed_storage) = left.map(Left::parts).unzip();
        let storage = place.as_ref().map(Place::storage).transpose()?.flatten();
        Ok(Before {
            keep,
            hand_over,
            link: pinned.map(|(link, _)| link).or(handed),
            storage: storage.or(handed_storage.flatten()),
            place,
        })
    }

    /// Is there a policy that is in force?
    pub fn is_in_force(&self) -> bool {
        self.link.is_some()
    }

    /// May the policy be there without this process, before or after it?
    pub fn is_to_age(&self) -> bool {
        self.is_in_force() || self.keep || self.hand_over
    }

    /// What was kept of each cgroup, if this version can read it.
    pub fn take_storage(&mut self) -> Option<OwnedFd> {
        self.storage.take()
    }

    /// Puts the new ops into the link that is there, at once; `None` if there is none.
    ///
    /// # Errors
    /// Those of [`carrier::update`].
    pub fn update(&mut self, ops: BorrowedFd<'_>, root: &Cgroup) -> Result<Option<OwnedFd>> {
        if let Some(link) = &self.link {
            carrier::update(link.as_fd(), ops, &root.path)?;
        }
        Ok(self.link.take())
    }

    /// Pins what is to be kept beside what there is, without `link` for the link that is there: what
    /// can fail does so before [`Self::update`].
    ///
    /// # Errors
    /// Whatever the BPF file system refuses.
    pub fn prepare(
        &self,
        link: Option<BorrowedFd<'_>>,
        explain: Option<BorrowedFd<'_>>,
        cgroups: Option<BorrowedFd<'_>>,
    ) -> Result<()> {
        let link = link.or(self.link.as_ref().map(AsFd::as_fd));
        match (&self.place, link) {
            (Some(place), Some(link)) if self.keep => place.prepare(link, explain, cgroups),
            _ => Ok(()),
        }
    }

    /// What was prepared takes the place of what there is.
    ///
    /// # Errors
    /// Whatever the BPF file system refuses.
    pub fn pin(&self) -> Result<()> {
        match &self.place {
            Some(place) if self.keep => place.pin(),
            _ => Ok(()),
        }
    }

    /// The same, where the new policy is in force whatever becomes of its pins.
    pub fn pin_or_warn(&self) {
        if let Err(error) = self.pin() {
            eprintln!(
                "mthp_ext: the policy is in force, but what is there of it once this daemon has ended is out \
                 of date: {error}"
            );
        }
    }

    /// The new policy is in force.  Its place, if it is to be kept; else it is this process alone
    /// that holds it from here on, unless the pins cannot be removed: it tries again at its end.
    pub fn done(self) -> Option<Place> {
        let place = self.place?;
        if self.keep {
            return Some(place);
        }
        let error = place.remove().err()?;
        eprintln!(
            "mthp_ext: until they are gone, pins let the policy outlive this daemon if it is killed: {error}"
        );
        Some(place)
    }

    /// It is not.  What was left there before stays, as it is; an empty place does not.
    pub fn give_up(self) {
        if let Some(place) = self.place {
            match place.link() {
                Ok(None) => drop(place.remove()),
                _ => drop(place.take_back()),
            }
        }
    }
}

/// Writes down how old the last scan may be.  What nobody scans does not age.
pub(super) fn set_heartbeat(programs: &mut Programs, load: &Load, window_ns: u64) -> Result<()> {
    let scans = programs.scans && (!programs.tunable || Rules(load.rules).has(SCANS));
    if !scans {
        return Ok(());
    }
    let mut ages = false;
    for mut map in programs.open.maps_mut() {
        if map.name() == abi::KEPT_MAP {
            ages = true;
            map.set_initial_value(&kept::oldest(window_ns).to_ne_bytes())
                .map_err(|e| load_error(programs.own.as_deref(), e))?;
        }
    }
    if ages {
        return Ok(());
    }
    Err(programs.mismatch(
        "it scans and has no section .rodata.kept, so that it would obey old verdicts for ever \
         once nobody scans: leave out --on-exit, or add bpf/heartbeat.bpf.h",
    ))
}

/// Where nothing is taken over there is nothing old, and the first scan is about to come: it
/// counts as scanned from now on.  Not before it was loaded, which may take seconds.
///
/// # Errors
/// Whatever the kernel answers.
pub(super) fn beat(object: &Object) -> Result<()> {
    let Some(scanned) = map(object, abi::SCANNED_MAP) else {
        return Ok(());
    };
    let now = u64::try_from(clock::monotonic().as_nanos()).unwrap_or_default();
    scanned
        .update(&0u32.to_ne_bytes(), &now.to_ne_bytes(), MapFlags::ANY)
        .map_err(io::Error::other)
        .context(|| "writing the time of the last scan".to_owned())
}

/// Takes over what was kept of each cgroup, into a map of its own: programs that are still in force
/// do not know the profiles of the next ones, and would take them away again.  A cgroup that cannot
/// be read, or has gone, begins anew.
pub(super) fn copy(storage: &OwnedFd, object: &Object, root: &Cgroup) {
    let Some(into) = map(object, abi::STORAGE_MAP) else {
        return;
    };
    let mut state = vec![0; size_of::<Kept>()];
    if into.value_size() as usize != state.len() {
        return;
    }
    let unlisted = cgroup::walk(&root.path, &mut |path, _| {
        let Ok(directory) = File::open(path) else {
            return;
        };
        let key = directory.as_raw_fd().to_ne_bytes();
        // SAFETY: the map has keys and values of these lengths: its name has the layout's number.
        let found = unsafe {
            libbpf_sys::bpf_map_lookup_elem(
                storage.as_raw_fd(),
                key.as_ptr().cast(),
                state.as_mut_ptr().cast(),
            )
        };
        if found == 0 {
            forget_load(&mut state);
            let _ = into.update(&key, &state, MapFlags::ANY);
        }
    });
    for one in unlisted {
        eprintln!("mthp_ext: {one}: what was kept of the cgroups below it begins anew");
    }
}

/// What of a cgroup's state means something to the programs that wrote it alone: profiles, and the
/// scan in whose list it is.
fn forget_load(state: &mut [u8]) {
    for at in [
        offset_of!(Kept, profile),
        offset_of!(Kept, assigned),
        offset_of!(Kept, woken),
    ] {
        if let Some(field) = state.get_mut(at..at + size_of::<u32>()) {
            field.fill(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_goes_over_without_what_its_load_alone_knows() {
        let mut state = vec![0xff; size_of::<Kept>()];
        forget_load(&mut state);
        let word = |at: usize| u32::from_ne_bytes(state[at..at + 4].try_into().unwrap());
        assert_eq!(word(offset_of!(Kept, profile)), 0);
        assert_eq!(word(offset_of!(Kept, assigned)), 0);
        assert_eq!(word(offset_of!(Kept, woken)), 0);
        assert_eq!(state.iter().filter(|byte| **byte == 0).count(), 12);
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! The policies attached to the system, found through the kernel's own lists: link, its
//! struct_ops map, the program in it, and the program beside it that explains.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions, ProgramInfo};
use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle, Program};

use super::carrier::Carrier;
use super::links::{self, LinkInfo};
use super::object::run_program;
use super::{clock, kept, thp};
use crate::errors::{Context, Error, Result};
use crate::model::abi::{self, Explained, Load, Tunables};
use crate::model::profiles::Profiles;

/// One attached policy.
pub struct Attached {
    /// The link that attaches it.
    pub link: LinkInfo,
    /// Its name: of the policy of its root, or of the struct_ops map of another version.
    pub name: String,
    /// Id of its mthp_choose.
    pub prog_id: u32,
    /// The values of the policy that its root has; `None` if they are not of this version, or
    /// could not be read.
    pub tunables: Option<Tunables>,
    /// It narrows nothing.
    pub dry_run: bool,
    /// When it was loaded, since boot; zero where that could not be read.
    pub loaded: Duration,
    /// Those of each policy that it serves.
    profiles: Option<Profiles>,
    /// Why they could not be read.
    pub failed: Option<io::Error>,
    /// It outlives its daemon.
    pub pinned: bool,
    /// Its scans, where it obeys them no longer than for a time.
    pub heartbeat: Option<Heartbeat>,
    /// The program that explains its decisions; `None` if not of this version.
    explain: Option<OwnedFd>,
    /// 1 GiB was a size when it was found.
    pud_on: bool,
}

/// How long ago the last scan ended, and when that is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// Nanoseconds since the last whole scan.
    pub age_ns: u64,
    /// Above this what has the rule pressure passes everything.
    pub oldest_ns: u64,
}

impl Heartbeat {
    /// At `now_ns`, of scans that ended last at `scanned_ns`; `None` where nothing ages.
    pub fn at(now_ns: u64, scanned_ns: u64, oldest_ns: u64) -> Option<Self> {
        (oldest_ns != 0).then(|| Heartbeat {
            age_ns: now_ns.saturating_sub(scanned_ns),
            oldest_ns,
        })
    }

    /// Are its scans recent enough for its verdicts to be obeyed?  As `mthp_is_stale()` of
    /// `bpf/heartbeat.bpf.h`; tests/change.rs compares.
    pub fn beats(&self) -> bool {
        self.age_ns <= self.oldest_ns
    }
}

/// All policies of the system.
///
/// # Errors
/// [`Error::NoHook`], [`Error::NoPrivilege`], or a failed system call.
pub fn attached(carrier: &Carrier) -> Result<Vec<Attached>> {
    let offset = carrier.program_offset()?;
    let links = match links::struct_ops_links() {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            return Err(Error::NoPrivilege {
                what: "list BPF links".to_owned(),
            });
        }
        other => other.context(|| "listing BPF links".to_owned())?,
    };
    if links.is_empty() {
        return Ok(Vec::new());
    }
    let wanted = ProgInfoQueryOptions::default().include_map_ids(true);
    let programs: Vec<ProgramInfo> = ProgInfoIter::with_query_opts(wanted).collect();
    let pud_on = thp::sizes_of_this_machine().pud().is_some();
    // Who may not look into that directory sees the rest.
    let pinned = kept::links().unwrap_or_default();
    let mut found = Vec::new();
    for link in links {
        let mut one = Attached {
            link,
            name: format!("(map {})", link.map_id),
            prog_id: 0,
            tunables: None,
            dry_run: false,
            loaded: Duration::ZERO,
            profiles: None,
            failed: None,
            pinned: pinned.contains(&link.id),
            heartbeat: None,
            explain: None,
            pud_on,
        };
        match one.find(carrier, offset, &programs) {
            Ok(true) => found.push(one),
            Ok(false) => {}
            // Ops without a cgroup are of another kind, or bind nobody any more.
            Err(_) if one.link.cgroup_id == 0 => {}
            Err(error) => {
                one.tunables = None;
                one.failed = Some(error);
                found.push(one);
            }
        }
    }
    Ok(found)
}

/// What there is; `None` for what has gone away meanwhile.
fn unless_gone<T>(found: libbpf_rs::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io::Error::other(error.to_string())),
    }
}

impl Attached {
    /// Finds out about the link's ops.  False if they are of another kind, or gone.
    fn find(
        &mut self,
        carrier: &Carrier,
        offset: usize,
        programs: &[ProgramInfo],
    ) -> io::Result<bool> {
        let Some(ops) = unless_gone(MapHandle::from_map_id(self.link.map_id))? else {
            return Ok(false);
        };
        let Some(info) = unless_gone(ops.info())? else {
            return Ok(false);
        };
        if !carrier.is_ops(&info.info).map_err(io::Error::other)? {
            return Ok(false);
        }
        self.name = ops.name().to_string_lossy().into_owned();
        let value = unless_gone(ops.lookup(&0u32.to_ne_bytes(), MapFlags::ANY))?.flatten();
        if let Some(value) = &value {
            self.link.cgroup_id = carrier.cgroup_of(&self.link, value);
        }
        // The kernel shows the program's id where the loader put its descriptor.
        let place = value
            .as_deref()
            .and_then(|value| value.get(offset..offset + 4));
        let Some(&[a, b, c, d]) = place else {
            return Ok(false);
        };
        self.prog_id = u32::from_ne_bytes([a, b, c, d]);
        self.find_rest(programs)?;
        Ok(true)
    }

    /// Profiles and explaining program: that shares the map of the constants, which say if the
    /// others can be read.
    fn find_rest(&mut self, programs: &[ProgramInfo]) -> io::Result<()> {
        let Some(choose) = programs.iter().find(|p| p.id == self.prog_id) else {
            // The list ends where one of them cannot be read.
            return match unless_gone(Program::fd_from_id(self.prog_id))? {
                Some(_) => Err(io::Error::other("the list of BPF programs ended too early")),
                None => Ok(()),
            };
        };
        self.loaded = choose.load_time;
        self.heartbeat = heartbeat(&choose.map_ids)?;
        for &id in &choose.map_ids {
            let Some(constants) = value_of(id, abi::CONSTANTS_MAP)? else {
                continue;
            };
            let constants: Option<Load> = abi::from_bytes(&constants);
            let Some(constants) = constants.filter(|constants| constants.abi == abi::ABI) else {
                continue;
            };
            let explain = programs
                .iter()
                .find(|p| p.name == abi::EXPLAIN_PROG && p.map_ids.contains(&id));
            let Some(explain) = explain else {
                continue;
            };
            self.dry_run = constants.dry_run != 0;
            self.explain = unless_gone(Program::fd_from_id(explain.id))?;
            // Its other maps say nothing, not even where they cannot be opened.
            return self.find_profiles(&choose.map_ids);
        }
        Ok(())
    }

    /// The profiles, and which of them the root has.
    fn find_profiles(&mut self, maps: &[u32]) -> io::Result<()> {
        for &id in maps {
            let Some(bytes) = value_of(id, abi::PROFILES_MAP)? else {
                continue;
            };
            let Some(profiles) = Profiles::from_bytes(&bytes) else {
                continue;
            };
            let root = match self.link.cgroup_id {
                0 => None,
                id => self.explain(id)?,
            };
            let tunables = *profiles.of(root.map_or(0, |root| root.now.profile));
            self.name = abi::text(&tunables.policy);
            if self.explain.is_some() {
                self.tunables = Some(tunables);
                self.profiles = Some(profiles);
            }
            break;
        }
        Ok(())
    }

    /// The values by which it decides for a cgroup.
    pub fn values(&self, explained: &Explained) -> Option<&Tunables> {
        let profiles = self.profiles.as_ref();
        profiles.map(|profiles| profiles.of(explained.now.profile))
    }

    /// What it decides for a cgroup now, and why, by its own program; `None` if it cannot be
    /// asked, or the cgroup is gone.
    ///
    /// # Errors
    /// Whatever the kernel answers; the policy decides none the less.
    pub fn explain(&self, cgroup_id: u64) -> io::Result<Option<Explained>> {
        let Some(program) = &self.explain else {
            return Ok(None);
        };
        explain(program.as_fd(), cgroup_id, self.pud_on)
    }
}

/// The same, by a program that explains; `pud_on`: 1 GiB is a size.
///
/// # Errors
/// Whatever the kernel answers.
pub fn explain(
    program: BorrowedFd<'_>,
    cgroup_id: u64,
    pud_on: bool,
) -> io::Result<Option<Explained>> {
    let question = Explained {
        cgroup_id,
        pud_on: pud_on.into(),
        ..Explained::default()
    };
    let mut context = abi::as_bytes(&question).to_vec();
    run_program(program, &mut context)?;
    Ok(abi::from_bytes(&context).filter(|answer: &Explained| answer.found != 0))
}

/// The heartbeat that maps of a program have; `None` where nothing ages.
fn heartbeat(map_ids: &[u32]) -> io::Result<Option<Heartbeat>> {
    let (mut oldest_ns, mut scanned_ns) = (0, None);
    for &id in map_ids {
        let Some(map) = unless_gone(MapHandle::from_map_id(id))? else {
            continue;
        };
        let is = |name: &str| map.name() == name;
        if !is(abi::KEPT_MAP) && !is(abi::SCANNED_MAP) {
            continue;
        }
        let value = unless_gone(map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY))?.flatten();
        let number = value.and_then(|value| value.try_into().ok());
        let number = number.map(u64::from_ne_bytes);
        match is(abi::KEPT_MAP) {
            true => oldest_ns = number.unwrap_or(0),
            false => scanned_ns = number,
        }
    }
    let now_ns = u64::try_from(clock::monotonic().as_nanos()).unwrap_or_default();
    Ok(scanned_ns.and_then(|scanned_ns| Heartbeat::at(now_ns, scanned_ns, oldest_ns)))
}

/// What a map of this name has; `None` for another one.
fn value_of(map_id: u32, name: &str) -> io::Result<Option<Vec<u8>>> {
    let Some(map) = unless_gone(MapHandle::from_map_id(map_id))? else {
        return Ok(None);
    };
    if map.name() != name {
        return Ok(None);
    }
    Ok(unless_gone(map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY))?.flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Too many open files is no other version of mthp_ext.
    #[test]
    fn only_what_is_not_there_is_gone() {
        let of = |errno: i32| unless_gone::<()>(Err(libbpf_rs::Error::from_raw_os_error(errno)));
        assert!(of(nix::libc::ENOENT).unwrap().is_none());
        for errno in [nix::libc::ENFILE, nix::libc::EPERM, nix::libc::ENOMEM] {
            let said = of(errno).unwrap_err().to_string();
            let system = io::Error::from_raw_os_error(errno).to_string();
            assert!(said.contains(&system), "{said}");
        }
        assert_eq!(unless_gone(Ok(1)).unwrap(), Some(1));
    }
}

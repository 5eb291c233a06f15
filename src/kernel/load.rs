// SPDX-License-Identifier: GPL-2.0-only
//! Loads a policy and attaches it to a cgroup.
//!
//! libbpf (as released) has no cgroup target for struct_ops, and fills the map
//! that holds the ops only while attaching by itself.  So the map is filled
//! here: a program descriptor in the place of the function pointer, all else 0.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use libbpf_rs::{MapCore, MapHandle, MapType, Object, ProgramType};

use super::assign::Assign;
use super::carrier::{self, Carrier};
use super::cgroup::Cgroup;
use super::clock;
use super::handed::{self, Named};
use super::kept::Place;
use super::late;
use super::links;
use super::locate::Locator;
use super::object::{descriptor, map, run_program};
use super::programs::{Programs, load_error, mismatch, why_not};
use super::swap;
use super::takeover::{self, Before, Stay};
use super::thp;
use crate::errors::{Context, Error, Result};
use crate::model::abi::{self, Load, Walk};
use crate::model::profiles::Profiles;
use crate::model::rule::{Rules, SCANS};
use crate::model::shown;

/// Programs that nobody needs before the policy is in force.
const LATE: [&str; 3] = [abi::SCAN_PROG, abi::EXPLAIN_PROG, abi::NAME_PROG];

/// What is done without the program that says where cgroups are.
const UNNAMED: &str = "the policy is in force; who is to be named is looked for among all cgroups";

/// Gives each cgroup that is there a policy of its own.
pub type Assigns<'a> = &'a mut dyn FnMut(&Assign) -> Result<()>;

/// A policy at work.  Dropping it detaches it.
pub struct Loaded {
    link: OwnedFd,
    /// The program that scans, where one is loaded.
    scan: Option<OwnedFd>,
    /// What assigns profiles to cgroups.
    pub assign: Assign,
    /// The program that says what is decided for a cgroup; an object of one's own may have none.
    explain: Option<OwnedFd>,
    /// The program that says where cgroups are; an object of one's own may have none, and a kernel
    /// that lets nobody read its memory (lockdown) takes none.
    name: Option<OwnedFd>,
    /// Whose subtree is scanned.
    root_id: u64,
    /// The kernel has pages of 1 GiB for those whom a setting lets have them.
    has_pud: bool,
    /// Ring buffer of changed decisions; an object of one's own may have none.
    pub events: Option<MapHandle>,
    /// Since when it is in force: `CLOCK_MONOTONIC`, milliseconds.
    pub in_force_ms: u64,
    /// What loading took, most of it the verifier's.
    pub load_time: Duration,
    /// Where it stays when this process has ended.
    kept: Option<Place>,
    /// Whether the next process may go on with what is kept of each cgroup.
    shares: bool,
    object: Object,
}

impl Loaded {
    /// Loads programs with the values of policies, and attaches them to `root`: in the place of a
    /// policy that was left there, if one was.  `assign` gives cgroups policies of their own, before
    /// any of this is in force.
    ///
    /// # Errors
    /// Whatever the kernel refuses, and what `assign` fails with; nothing is attached then.
    pub fn attach(
        programs: Programs,
        values: (&Load, &Profiles),
        assign: Option<Assigns<'_>>,
        carrier: &Carrier,
        root: &Cgroup,
        stay: Stay,
    ) -> Result<Self> {
        let mut before = Before::find(root, stay, values.0.dry_run != 0)?;
        match Self::attach_over(programs, values, assign, (carrier, root), &mut before) {
            Ok(loaded) => Ok(Loaded {
                kept: before.done(),
                ..loaded
            }),
            Err(error) => {
                before.give_up();
                Err(error)
            }
        }
    }

    fn attach_over(
        mut programs: Programs,
        (load, profiles): (&Load, &Profiles),
        assign_all: Option<Assigns<'_>>,
        (carrier, root): (&Carrier, &Cgroup),
        before: &mut Before,
    ) -> Result<Self> {
        carrier.require_hook()?;
        set_values(&mut programs, load, profiles)?;
        leave_out(&mut programs, load, assign_all.is_some());
        let (takes_over, has_pud) = (before.is_in_force(), load.pud_pages != 0);
        if before.is_to_age() {
            takeover::set_heartbeat(&mut programs, load, profiles.of(0).window_ns)?;
        }
        // What other programs, or a dry run, left of cgroups says nothing here.
        let shares = programs.own.is_none() && load.dry_run == 0;
        let storage = before.take_storage().filter(|_| shares);
        let Programs { mut open, own, .. } = programs;
        let own = own.as_deref();
        let begun = Instant::now();
        // What takes over is scanned before it is in force, as it would be too old else.
        let aside: &[&str] = match takes_over {
            true => &[abi::NAME_PROG],
            false => &LATE,
        };
        let late = match own {
            None => late::set_aside(&mut open, aside).map_err(|e| load_error(own, e.into()))?,
            Some(_) => Vec::new(),
        };
        let object = open.load().map_err(|e| load_error(own, e))?;

        let ops = fill_ops(&object, own, carrier, root)?;
        let directory =
            File::open(&root.path).context(|| format!("opening {}", shown::path(&root.path)))?;
        let mut scan = descriptor(&object, abi::SCAN_PROG)?;
        let mut explain = descriptor(&object, abi::EXPLAIN_PROG)?;
        let mut name = descriptor(&object, abi::NAME_PROG)?;
        let handle = |name: &str| {
            let found = map(&object, name).map(|map| MapHandle::try_from(&map));
            found.transpose().map_err(|e| load_error(own, e))
        };
        let events = handle(abi::EVENTS_MAP)?;
        let assign = Assign {
            program: descriptor(&object, abi::ASSIGN_PROG)?,
            profiles: handle(abi::PROFILES_MAP)?,
        };
        if let Some(storage) = &storage {
            takeover::copy(storage, &object, root);
        }
        if let Some(assign_all) = assign_all {
            assign_all(&assign)?;
        }
        // Before it decides anything: what it takes over from is narrowing already.
        match &scan {
            Some(scan) if takes_over => run_scan(scan.as_fd(), root.id, has_pud)?,
            _ if before.is_to_age() => takeover::beat(&object)?,
            _ => {}
        }
        let storage = map(&object, abi::STORAGE_MAP).filter(|_| shares);
        let kept = storage.as_ref().map(AsFd::as_fd);
        if takes_over {
            before.prepare(None, explain.as_ref().map(AsFd::as_fd), kept)?;
        }
        let link = match before.update(ops.as_fd(), root)? {
            Some(link) => link,
            None => carrier.attach(ops.as_fd(), directory.as_fd(), &root.path)?,
        };
        let in_force_ms = clock::now_ms();
        for one in late {
            let loaded = late::load(&object, one);
            let needed = |(e, log): (io::Error, String)| why_not(None, e.into(), &log);
            match one {
                abi::SCAN_PROG => scan = loaded.map_err(needed)?,
                abi::EXPLAIN_PROG => explain = loaded.map_err(needed)?,
                _ => {
                    name = loaded.unwrap_or_else(|(e, _)| {
                        eprintln!("mthp_ext: {one} does not load ({e}): {UNNAMED}");
                        None
                    });
                }
            }
        }
        let load_time = begun.elapsed();
        if takes_over {
            before.pin_or_warn();
        } else {
            let (link, explain) = (link.as_fd(), explain.as_ref().map(AsFd::as_fd));
            let prepared = before.prepare(Some(link), explain, kept);
            prepared
                .and_then(|()| before.pin())
                .inspect_err(|_| carrier::detach(&link))?;
        }
        Ok(Loaded {
            link,
            scan,
            assign,
            explain,
            name,
            root_id: root.id,
            has_pud,
            events,
            in_force_ms,
            load_time,
            kept: None,
            shares,
            object,
        })
    }

    /// The link's id, as `status` and bpftool show it.
    ///
    /// # Errors
    /// If the kernel does not return it.
    pub fn link_id(&self) -> Result<u32> {
        Ok(self.info()?.id)
    }

    fn info(&self) -> Result<links::LinkInfo> {
        links::info(self.link.as_fd()).context(|| "reading the info of the link".to_owned())
    }

    /// Brings all verdicts up to date.  Does nothing for a policy without scan.
    ///
    /// # Errors
    /// [`Error::Scan`] with the errno of the failed step.  Interruptions are
    /// retried a few times, not forever.
    pub fn scan(&self) -> Result<()> {
        let Some(program) = &self.scan else {
            return Ok(());
        };
        run_scan(program.as_fd(), self.root_id, self.has_pud)
    }

    /// What the service manager is to hold, so that the next process goes on with this policy.
    ///
    /// # Errors
    /// If there can be no further descriptors.
    pub fn hand_over(&self) -> Result<Vec<Named>> {
        let storage = map(&self.object, abi::STORAGE_MAP).filter(|_| self.shares);
        handed::descriptors(&self.link, storage)
            .context(|| "handing the policy over to the service manager".to_owned())
    }

    /// The program that says what is decided for a cgroup.  `status` finds it as long as this is
    /// not dropped.
    ///
    /// # Errors
    /// Without a descriptor for it.
    pub fn explain(&self) -> Result<Option<OwnedFd>> {
        let explain = self.explain.as_ref();
        let copy = explain.map(OwnedFd::try_clone).transpose();
        copy.context(|| format!("keeping the program {}", abi::EXPLAIN_PROG))
    }

    /// Who says where cgroups below `mount` are.
    pub fn locator(&self, mount: &Path) -> Option<Locator> {
        let copy = self.name.as_ref()?.try_clone();
        let made = copy.and_then(|program| Locator::new(program, mount));
        made.inspect_err(|e| {
            eprintln!(
                "mthp_ext: {} does not answer ({e}): {UNNAMED}",
                abi::NAME_PROG
            )
        })
        .ok()
    }

    /// Detaches now, so that nothing is left when the caller says so: no pin either.
    ///
    /// # Errors
    /// If a pin cannot be removed.
    pub fn detach(self) -> Result<()> {
        carrier::detach(&self.link);
        self.kept.as_ref().map_or(Ok(()), Place::remove)
    }
}

impl AsFd for Loaded {
    /// The link: it hangs up when its cgroup is removed.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}

/// One whole scan of the subtree of a cgroup.
fn run_scan(program: BorrowedFd<'_>, root_id: u64, has_pud: bool) -> Result<()> {
    let walk = Walk {
        root_id,
        swap_dear: swap::is_dear().into(),
        pud_on: (has_pud && thp::sizes_of_this_machine().pud().is_some()).into(),
        ..Walk::default()
    };
    // The program leaves here how far it has come.
    let mut walk = abi::as_bytes(&walk).to_vec();
    to_the_end(|| run_program(program, &mut walk).map(|more| more != 0))
        .map_err(|source| Error::Scan { source })
}

/// How often an interrupted step is tried again.
const RETRIES: u32 = 16;

/// Steps of one scan at most: some millions of cgroups.  A scan that takes more goes round
/// in circles.
const STEPS: u32 = 4096;

/// Takes steps until one says that there is no more to do.
fn to_the_end(mut step: impl FnMut() -> io::Result<bool>) -> io::Result<()> {
    let mut left = RETRIES;
    for _ in 0..STEPS {
        match step() {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(e)
                if left > 0
                    && matches!(
                        e.kind(),
                        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
                    ) =>
            {
                left -= 1;
            }
            Err(e) => return Err(e),
        }
    }
    Err(io::Error::new(
        io::ErrorKind::TimedOut,
        format!("no end after {STEPS} steps"),
    ))
}

/// Writes constants and profiles.  An object of one's own may do without them.
fn set_values(programs: &mut Programs, load: &Load, profiles: &Profiles) -> Result<()> {
    if !programs.tunable {
        return Ok(());
    }
    for mut map in programs.open.maps_mut() {
        let name = map.name().to_owned();
        let set = if name == abi::CONSTANTS_MAP {
            map.set_initial_value(abi::as_bytes(load))
        } else if name == abi::PROFILES_MAP {
            map.set_initial_value(&profiles.bytes())
        } else {
            continue;
        };
        set.map_err(|e| load_error(programs.own.as_deref(), e))?;
    }
    Ok(())
}

/// Programs that nobody would run are not loaded.  An object that obeys no policy scans if it has
/// a program that does.
fn leave_out(programs: &mut Programs, load: &Load, assigns: bool) {
    let scans = !programs.tunable || Rules(load.rules).has(SCANS);
    for mut program in programs.open.progs_mut() {
        let needed = [(abi::SCAN_PROG, scans), (abi::ASSIGN_PROG, assigns)];
        if needed.contains(&(program.name().to_str().unwrap_or_default(), false)) {
            program.set_autoload(false);
        }
    }
}

/// Gives the kernel the ops: one update of element 0.  There is one map of ops, with one
/// program.
fn fill_ops<'o>(
    object: &'o Object,
    own: Option<&Path>,
    carrier: &Carrier,
    root: &Cgroup,
) -> Result<libbpf_rs::Map<'o>> {
    let mut maps = object.maps().filter(|m| m.map_type() == MapType::StructOps);
    let mut programs = object
        .progs()
        .filter(|p| p.prog_type() == ProgramType::StructOps);
    let (Some(ops), None) = (maps.next(), maps.next()) else {
        return Err(mismatch(own, "it must have one struct_ops map"));
    };
    let (Some(program), None) = (programs.next(), programs.next()) else {
        return Err(mismatch(own, "it must have one struct_ops program"));
    };
    // A descriptor is written into it: not into whatever struct the kernel takes it for.
    let info = ops.info().map_err(|e| load_error(own, e))?;
    if !carrier.is_ops(&info.info)? {
        return Err(mismatch(
            own,
            "its struct_ops map is not of struct bpf_mthp_ops",
        ));
    }
    let filled = carrier.fill(&ops, program.as_fd(), root)?;
    filled.map_err(|e| load_error(own, e))?;
    Ok(ops)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps that fail with `kind`, `times` times, then end; the steps that were taken.
    fn failing(kind: io::ErrorKind, times: u32) -> (io::Result<()>, u32) {
        let mut taken = 0;
        let result = to_the_end(|| {
            taken += 1;
            if taken > times {
                Ok(false)
            } else {
                Err(kind.into())
            }
        });
        (result, taken)
    }

    #[test]
    fn a_short_interruption_is_stepped_over() {
        for kind in [io::ErrorKind::Interrupted, io::ErrorKind::WouldBlock] {
            let (result, taken) = failing(kind, 3);
            assert!(result.is_ok());
            assert_eq!(taken, 4);
        }
    }

    /// The proposal's loop never ended when its read() kept failing.
    #[test]
    fn an_endless_interruption_ends() {
        for kind in [io::ErrorKind::Interrupted, io::ErrorKind::WouldBlock] {
            let (result, taken) = failing(kind, u32::MAX);
            assert_eq!(result.unwrap_err().kind(), kind);
            assert_eq!(taken, RETRIES + 1);
        }
    }

    #[test]
    fn any_other_error_ends_at_once() {
        let (result, taken) = failing(io::ErrorKind::InvalidInput, 2);
        assert!(result.is_err());
        assert_eq!(taken, 1);
    }

    #[test]
    fn steps_are_taken_until_there_is_no_more() {
        let mut taken = 0;
        let result = to_the_end(|| {
            taken += 1;
            Ok(taken < 20)
        });
        assert!(result.is_ok());
        assert_eq!(taken, 20);
    }

    #[test]
    fn a_scan_that_never_comes_to_its_end_is_ended() {
        let mut taken = 0;
        let result = to_the_end(|| {
            taken += 1;
            Ok(true)
        });
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(taken, STEPS);
    }
}

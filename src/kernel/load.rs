// SPDX-License-Identifier: GPL-2.0-only
//! Loads a policy and attaches it to a cgroup.
//!
//! libbpf (as released) has no cgroup target for struct_ops, and fills the map
//! that holds the ops only while attaching by itself.  So the map is filled
//! here: a program descriptor in the place of the function pointer, all else 0.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use libbpf_rs::btf::types::{DataSec, Var};
use libbpf_rs::btf::{Btf, ReferencesType};
use libbpf_rs::{
    ErrorKind, MapCore, MapFlags, MapHandle, MapType, Object, ObjectBuilder, OpenObject,
    PrintLevel, ProgramType,
};

use super::carrier::{self, Carrier};
use super::cgroup::Cgroup;
use super::clock;
use super::handed::{self, Left, Named};
use super::kept::{self, Place};
use super::late;
use super::links;
use crate::errors::{Context, Error, Result};
use crate::model::abi::{self, Assignment, Load, Walk};
use crate::model::options::SCANS;
use crate::model::profiles::Profiles;
use crate::model::rule::Rules;
use crate::model::shown;

/// An object, read and not loaded yet.
pub struct Programs {
    open: OpenObject,
    /// Its file; `None`: the one that is built in.
    own: Option<PathBuf>,
    tunable: bool,
    scans: bool,
}

impl Programs {
    /// Reads an object of the user's, or the one that is built in.
    ///
    /// # Errors
    /// [`Error::Usage`] for a file that cannot be used: the kernel was not asked yet.
    pub fn read(own: Option<&Path>) -> Result<Self> {
        libbpf_rs::set_print(Some((PrintLevel::Info, keep_log)));
        let unusable = |file: &Path, why: &dyn Display| {
            let place = file.display();
            Error::Usage(format!(
                "cannot use the object {place}: {why}. Name a BPF object that you may read; \
                 docs/policies.md says what it must have."
            ))
        };
        let bytes = match own {
            Some(file) => Cow::Owned(std::fs::read(file).map_err(|e| unusable(file, &e))?),
            None => Cow::Borrowed(abi::OBJECT),
        };
        let mut builder = ObjectBuilder::default();
        let open = builder.name("mthp").and_then(|b| b.open_memory(&bytes));
        let open = open.map_err(|e| match own {
            Some(file) => unusable(file, &e),
            None => load_error(None, e),
        })?;
        if let Some(file) = own {
            let ops = ops_of(&bytes).map_err(|e| unusable(file, &e))?;
            require_ops(&ops).map_err(|why| mismatch(Some(file), &why))?;
        }
        let (mut tunable, mut foreign) = (false, own.is_none());
        for map in open.maps().filter(|map| map.name() == abi::CONSTANTS_MAP) {
            let theirs: Option<Load> = map.initial_value().and_then(abi::from_bytes);
            let profiles = open.maps().find(|map| map.name() == abi::PROFILES_MAP);
            let profiles = profiles.and_then(|map| Profiles::from_bytes(map.initial_value()?));
            let ours = theirs.is_some_and(|theirs| theirs.abi == abi::ABI);
            foreign = !ours || profiles.is_none();
            tunable = true;
        }
        let scans = open.progs().any(|p| p.name() == abi::SCAN_PROG);
        let programs = Programs {
            open,
            own: own.map(Path::to_owned),
            tunable,
            scans,
        };
        match foreign {
            true => {
                Err(programs.mismatch("its tunables are not those of this mthp_ext (bpf/abi.h)"))
            }
            false => Ok(programs),
        }
    }

    /// Does it take the values of a policy?
    pub fn tunable(&self) -> bool {
        self.tunable
    }

    /// Has it a program that scans?
    pub fn scans(&self) -> bool {
        self.scans
    }

    /// Has it a program that scans, as the policy needs it?
    ///
    /// # Errors
    /// [`Error::Usage`]: what the policy asks for would not be done, and nobody would notice.
    pub fn require_scan(&self, policy: &str) -> Result<()> {
        if self.scans {
            return Ok(());
        }
        let (scan, rule) = (abi::SCAN_PROG, SCANS.name());
        Err(self.mismatch(&format!(
            "it has no program {scan}, which policy {policy} needs for its rule {rule}: \
             take a policy without that rule, or add the program"
        )))
    }

    /// It is not made as it must be.
    fn mismatch(&self, what: &str) -> Error {
        mismatch(self.own.as_deref(), what)
    }
}

/// The types of the struct_ops maps of an object: each is a variable of a section.
fn ops_of(object: &[u8]) -> libbpf_rs::Result<Vec<String>> {
    let Some(btf) = Btf::from_raw("mthp", object)? else {
        return Ok(Vec::new());
    };
    let sections = btf.type_by_kind::<DataSec<'_>>().filter(|section| {
        let name = section.name().and_then(OsStr::to_str);
        name.is_some_and(|name| name == ".struct_ops" || name == ".struct_ops.link")
    });
    let mut found = Vec::new();
    for section in sections {
        for variable in section.iter() {
            let of = btf.type_by_id::<Var<'_>>(variable.ty);
            let name = of.and_then(|of| of.referenced_type().skip_mods_and_typedefs().name());
            let name = name.unwrap_or_default().to_string_lossy();
            // What follows three underscores is no part of the kernel's name.
            found.push(name.split("___").next().unwrap_or_default().to_owned());
        }
    }
    Ok(found)
}

/// There is one map of ops, and it is of the hook.
fn require_ops(ops: &[String]) -> std::result::Result<(), String> {
    match ops {
        [one] if one == carrier::OPS => Ok(()),
        [other] => Err(format!(
            "its struct_ops map is of struct {other}, not of struct {}",
            carrier::OPS
        )),
        _ => Err("it must have one struct_ops map".to_owned()),
    }
}

/// The end of what libbpf said, kept to explain a failed load.
static LIBBPF_LOG: Mutex<String> = Mutex::new(String::new());

/// How much of it is kept: the verifier prints the reason last.
pub(super) const LOG_TAIL: usize = 4096;

fn keep_log(level: PrintLevel, message: String) {
    if level == PrintLevel::Debug {
        return;
    }
    let Ok(mut log) = LIBBPF_LOG.lock() else {
        return;
    };
    log.push_str(&message);
    if log.len() > 4 * LOG_TAIL {
        let cut = log.len() - LOG_TAIL;
        let cut = (cut..log.len())
            .find(|&i| log.is_char_boundary(i))
            .unwrap_or(log.len());
        log.drain(..cut);
    }
}

/// Programs that nobody needs before the policy is in force.
const LATE: [&str; 2] = [abi::SCAN_PROG, abi::EXPLAIN_PROG];

/// What is to become of a policy, and what there is of one before it.
#[derive(Default)]
pub struct Stay {
    /// It is to be pinned, and so to outlive this process.
    pub keep: bool,
    /// It is to be handed over: [`Loaded::hand_over`].
    pub hand_over: bool,
    /// What was handed to this process.
    pub left: Option<Left>,
}

/// A policy at work.  Dropping it detaches it.
pub struct Loaded {
    link: OwnedFd,
    /// The program that scans, where one is loaded.
    scan: Option<OwnedFd>,
    /// The program that assigns profiles, where one is loaded.
    assign: Option<OwnedFd>,
    /// The program that says what is decided for a cgroup; an object of one's own may have none.
    explain: Option<OwnedFd>,
    /// Whose subtree is scanned.
    root_id: u64,
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
    /// policy that was left there, if one was.  `assigns`: with the program that [`Self::assign`]
    /// runs.
    ///
    /// # Errors
    /// Whatever the kernel refuses; nothing is attached then.
    pub fn attach(
        programs: Programs,
        values: (&Load, &Profiles),
        assigns: bool,
        carrier: &Carrier,
        root: &Cgroup,
        stay: Stay,
    ) -> Result<Self> {
        Place::sweep();
        let keep = stay.keep;
        let place = match keep {
            true => Some(Place::make(root)?),
            false => Place::find(root)?,
        };
        if let (1.., Some(place)) = (values.0.dry_run, &place) {
            if place.link()?.is_some() {
                return Err(Error::Usage(format!(
                    "{}: a policy is kept here, and a dry run would end it: run `mthp_ext detach` first, \
                     or choose another --root.",
                    shown::path(&root.path)
                )));
            }
        }
        let attached = Self::attach_at(
            programs,
            values,
            assigns,
            (carrier, root),
            place.as_ref(),
            stay,
        );
        let attached = match (attached, place) {
            (Ok(attached), place) => (attached, place),
            (Err(error), place) => {
                // What was left there before stays, as it is; an empty place does not.
                if let Some(place) = place {
                    if matches!(place.link(), Ok(None)) {
                        let _ = place.remove();
                    }
                }
                return Err(error);
            }
        };
        let (attached, place) = attached;
        let kept = match (place, keep) {
            (Some(place), false) => {
                // From here on it is this process that holds it.
                place.remove()?;
                None
            }
            (place, _) => place,
        };
        Ok(Loaded { kept, ..attached })
    }

    fn attach_at(
        mut programs: Programs,
        (load, profiles): (&Load, &Profiles),
        assigns: bool,
        (carrier, root): (&Carrier, &Cgroup),
        place: Option<&Place>,
        stay: Stay,
    ) -> Result<Self> {
        carrier.require_hook()?;
        set_values(&mut programs, load, profiles)?;
        leave_out(&mut programs, load, assigns);
        let Stay {
            keep,
            hand_over,
            left,
        } = stay;
        let (handed, left_storage) = left.map(Left::parts).unzip();
        let takes_over = place.is_some() || handed.is_some();
        // What is taken over stays with others for a moment, whatever becomes of it.
        if takes_over || hand_over {
            set_heartbeat(&mut programs, load, profiles.of(0).window_ns, takes_over)?;
        }
        // What other programs, a dry run, or other profiles left of cgroups says nothing here.
        let shares = programs.own.is_none() && !assigns && load.dry_run == 0;
        let storage = place.filter(|_| shares).map(Place::storage);
        let handed_storage = left_storage.flatten().filter(|_| shares);
        if let Some(storage) = storage.transpose()?.flatten().or(handed_storage) {
            reuse(&mut programs, &storage)?;
        }
        let Programs { mut open, own, .. } = programs;
        let own = own.as_deref();
        let left = place.map(Place::link).transpose()?.flatten();
        let left = left.map(|(link, _)| link).or(handed);
        let begun = Instant::now();
        // What takes over is scanned before it is in force, as it would be too old else.
        let late = match own {
            None if !takes_over => {
                late::set_aside(&mut open, &LATE).map_err(|e| load_error(own, e.into()))?
            }
            _ => Vec::new(),
        };
        let object = open.load().map_err(|e| load_error(own, e))?;

        let ops = fill_ops(&object, own, carrier, root)?;
        let directory =
            File::open(&root.path).context(|| format!("opening {}", shown::path(&root.path)))?;
        let mut scan = descriptor(&object, abi::SCAN_PROG)?;
        let assign = descriptor(&object, abi::ASSIGN_PROG)?;
        let mut explain = descriptor(&object, abi::EXPLAIN_PROG)?;
        let events = map(&object, abi::EVENTS_MAP)
            .map(|events| MapHandle::try_from(&events))
            .transpose()
            .map_err(|e| load_error(own, e))?;
        // Before it decides anything: what it takes over from is narrowing already.
        if let (true, Some(scan)) = (takes_over, &scan) {
            run_scan(scan.as_fd(), root.id)?;
        }
        let is_left = left.is_some();
        let link = match left {
            Some(link) => {
                carrier::update(link.as_fd(), ops.as_fd(), &root.path)?;
                link
            }
            None => carrier.attach(ops.as_fd(), directory.as_fd(), &root.path)?,
        };
        let in_force_ms = clock::now_ms();
        for name in late {
            let loaded = late::load(&object, name);
            let loaded = loaded.map_err(|(e, log)| why_not(None, e.into(), &log))?;
            match name {
                abi::SCAN_PROG => scan = loaded,
                _ => explain = loaded,
            }
        }
        let load_time = begun.elapsed();
        if let (true, Some(place)) = (keep, place) {
            let storage = map(&object, abi::STORAGE_MAP).filter(|_| shares);
            let (explain, storage) = (explain.as_ref(), storage.as_ref());
            let pinned = place.pin(
                link.as_fd(),
                explain.map(AsFd::as_fd),
                storage.map(AsFd::as_fd),
            );
            if let (Err(_), false) = (&pinned, is_left) {
                carrier::detach(&link);
            }
            pinned?;
        }
        Ok(Loaded {
            link,
            scan,
            assign,
            explain,
            root_id: root.id,
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
        run_scan(program.as_fd(), self.root_id)
    }

    /// From now on the cgroup has the profile of this id, and with it all those below it that
    /// have none of their own; 0: that of its parent.  False if there is no such cgroup, or no
    /// memory for it.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn assign(&self, cgroup_id: u64, profile: u32) -> io::Result<bool> {
        let Some(program) = &self.assign else {
            return Ok(false);
        };
        let question = Assignment {
            cgroup_id,
            profile,
            ..Assignment::default()
        };
        let mut context = abi::as_bytes(&question).to_vec();
        run_program(program.as_fd(), &mut context)?;
        Ok(abi::from_bytes(&context).is_some_and(|answer: Assignment| answer.done != 0))
    }

    /// Writes the profiles into the programs' map.  Values of slots that cgroups have stay as
    /// they are, byte by byte, so no request sees half of one.
    ///
    /// # Errors
    /// Whatever the kernel answers.
    pub fn set_profiles(&self, profiles: &Profiles) -> io::Result<()> {
        let Some(map) = map(&self.object, abi::PROFILES_MAP) else {
            return Ok(());
        };
        let key = 0u32.to_ne_bytes();
        map.update(&key, &profiles.bytes(), MapFlags::ANY)
            .map_err(io::Error::other)
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

    /// Detaches now, so that nothing is left when the caller says so: no pin either.
    ///
    /// # Errors
    /// If a pin cannot be removed.
    pub fn detach(self) -> Result<()> {
        carrier::detach(&self.link);
        self.kept.map_or(Ok(()), Place::remove)
    }
}

impl AsFd for Loaded {
    /// The link: it hangs up when its cgroup is removed.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}

/// One whole scan of the subtree of a cgroup.
fn run_scan(program: BorrowedFd<'_>, root_id: u64) -> Result<()> {
    let walk = Walk {
        root_id,
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

/// Runs a syscall program once and returns what it returns.  It may write to its context.
///
/// # Errors
/// The kernel's errno.
pub fn run_program(program: BorrowedFd<'_>, context: &mut [u8]) -> io::Result<u32> {
    let mut opts = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
        ctx_in: context.as_mut_ptr().cast(),
        ctx_size_in: u32::try_from(context.len()).unwrap_or(u32::MAX),
        ..Default::default()
    };
    // SAFETY: the descriptor is open; the kernel reads and writes the context within its length.
    let ret = unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut opts) };
    if ret == 0 {
        Ok(opts.retval)
    } else {
        Err(io::Error::from_raw_os_error(-ret))
    }
}

/// A descriptor of a program; `None` where it is not loaded.
fn descriptor(object: &Object, name: &str) -> Result<Option<OwnedFd>> {
    program(object, name)
        .map(|p| p.as_fd().try_clone_to_owned())
        .transpose()
        .context(|| format!("keeping the program {name}"))
}

fn load_error(own: Option<&Path>, source: libbpf_rs::Error) -> Error {
    let log = LIBBPF_LOG.lock().map(|log| log.clone()).unwrap_or_default();
    why_not(own, source, &log)
}

/// Why an object does not load. `log`: what libbpf said.
fn why_not(own: Option<&Path>, source: libbpf_rs::Error, log: &str) -> Error {
    // EACCES is of this kind as well: the verifier's, which ends its log so.
    let refused = log.contains("\nprocessed ");
    if source.kind() == ErrorKind::PermissionDenied && !refused {
        return Error::NoPrivilege {
            what: "load BPF programs".to_owned(),
        };
    }
    if matches!(
        source.kind(),
        ErrorKind::OutOfMemory | ErrorKind::WouldBlock
    ) {
        return Error::System {
            what: "loading the policy's programs, for which memory is short: start it again"
                .to_owned(),
            source: io::Error::other(source.to_string()),
        };
    }
    let log = if log.is_empty() {
        String::new()
    } else {
        format!("\n{}", log.trim_end())
    };
    let (what, remedy) = match own {
        None => (
            "the policy's programs".to_owned(),
            "Most likely kernel and mthp_ext are of different versions: \
             build both from the same checkout (docs/install.md).",
        ),
        Some(file) => (
            format!("the object {}", file.display()),
            "Correct the program; what libbpf and the verifier say follows.",
        ),
    };
    Error::Load {
        what,
        remedy,
        source,
        log,
    }
}

/// An object that is not made as it must be: the user's mistake, if it is the user's.
fn mismatch(own: Option<&Path>, what: &str) -> Error {
    match own {
        Some(file) => Error::Usage(format!(
            "cannot use the object {}: {what}. docs/policies.md says what it must have.",
            file.display()
        )),
        None => {
            let source = io::Error::new(io::ErrorKind::InvalidData, what);
            load_error(None, libbpf_rs::Error::from(source))
        }
    }
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

/// Writes down how old the last scan may be.  What nobody scans does not age.
fn set_heartbeat(
    programs: &mut Programs,
    load: &Load,
    window_ns: u64,
    takes_over: bool,
) -> Result<()> {
    let scans = programs.scans && (!programs.tunable || Rules(load.rules).has(SCANS));
    if !scans {
        return Ok(());
    }
    let oldest = kept::oldest(window_ns);
    // Where nothing is taken over there is nothing old, and the first scan is about to come.
    let scanned = match takes_over {
        true => 0,
        false => u64::try_from(clock::monotonic().as_nanos()).unwrap_or_default(),
    };
    let mut ages = false;
    for mut map in programs.open.maps_mut() {
        let value = match map.name().to_str() {
            Some(abi::KEPT_MAP) => oldest,
            Some(abi::SCANNED_MAP) => scanned,
            _ => continue,
        };
        ages |= map.name() == abi::KEPT_MAP;
        map.set_initial_value(&value.to_ne_bytes())
            .map_err(|e| load_error(programs.own.as_deref(), e))?;
    }
    if ages {
        return Ok(());
    }
    Err(programs.mismatch(
        "it scans and has no section .rodata.kept, so that it would obey old verdicts for ever \
         once nobody scans: leave out --on-exit, or add bpf/heartbeat.bpf.h",
    ))
}

/// Goes on with what was kept of each cgroup.
fn reuse(programs: &mut Programs, storage: &OwnedFd) -> Result<()> {
    for mut map in programs.open.maps_mut() {
        if map.name() == abi::STORAGE_MAP {
            return map
                .reuse_fd(storage.as_fd())
                .map_err(|e| load_error(programs.own.as_deref(), e));
        }
    }
    Ok(())
}

/// A program that is loaded.
fn program<'o>(object: &'o Object, name: &str) -> Option<libbpf_rs::Program<'o>> {
    let mut loaded = object.progs().filter(|p| p.autoload());
    loaded.find(|p| p.name() == OsStr::new(name))
}

fn map<'o>(object: &'o Object, name: &str) -> Option<libbpf_rs::Map<'o>> {
    object.maps().find(|m| m.name() == OsStr::new(name))
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
    use nix::errno::Errno;

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

    #[test]
    fn a_refusal_is_no_lack_of_privilege() {
        let code = |errno: Errno, log: &str| {
            let source = libbpf_rs::Error::from(io::Error::from(errno));
            why_not(None, source, log).code()
        };
        let verifier = "R1 invalid mem access\nprocessed 12 insns (limit 1000000)\n";
        assert_eq!(code(Errno::EPERM, ""), 4);
        assert_eq!(code(Errno::EACCES, verifier), 13);
        // Another start may find memory.
        assert_eq!(code(Errno::ENOMEM, ""), 1);
    }

    /// The kernel was not asked yet: it can neither refuse it nor lack a privilege.
    #[test]
    fn a_file_that_is_no_object_is_the_users_mistake() {
        let dir = tempfile::tempdir().unwrap();
        let garbage = dir.path().join("own.bpf.o");
        std::fs::write(&garbage, b"no object").unwrap();
        for file in [
            Path::new("/proc/none/typo.o"),
            dir.path(),
            garbage.as_path(),
        ] {
            let error = Programs::read(Some(file)).map(|_| ()).unwrap_err();
            assert_eq!(error.code(), 2, "{error}");
            let said = error.to_string();
            assert!(said.contains(file.to_str().unwrap()), "{said}");
            assert!(!said.contains('\n'), "{said}");
        }
    }

    #[test]
    fn what_is_built_in_takes_values_and_scans() {
        let ours = Programs::read(None).unwrap();
        assert!(ours.tunable() && ours.scans());
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("own.bpf.o");
        let mut bytes = abi::OBJECT.to_vec();
        std::fs::write(&file, &bytes).unwrap();
        assert!(Programs::read(Some(&file)).unwrap().tunable());
        // Under another name they are no tunables.
        let bare = String::from_utf8_lossy(&bytes).contains(abi::CONSTANTS_MAP);
        assert!(bare, "the object has the name");
        let name = abi::CONSTANTS_MAP.as_bytes();
        let mut renamed = bytes.clone();
        for at in 0..renamed.len() - name.len() {
            if renamed[at..].starts_with(name) {
                renamed[at + name.len() - 1] = b'x';
            }
        }
        std::fs::write(&file, renamed).unwrap();
        assert!(!Programs::read(Some(&file)).unwrap().tunable());
        // One of another version: its number stands once in the object.
        let number = abi::ABI.0.to_ne_bytes();
        let places: Vec<usize> = (0..bytes.len() - 4)
            .filter(|&at| bytes[at..at + 4] == number)
            .collect();
        for at in places {
            bytes[at] = bytes[at].wrapping_sub(1);
        }
        std::fs::write(&file, &bytes).unwrap();
        let error = Programs::read(Some(&file)).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("bpf/abi.h"), "{error}");
        assert_eq!(error.code(), 2);
    }

    /// An object with these declarations, as the compiler of ours makes it.
    fn compiled(dir: &Path, declarations: &str) -> PathBuf {
        let (source, object) = (dir.join("own.c"), dir.join("own.o"));
        std::fs::write(&source, declarations).unwrap();
        let status = std::process::Command::new(env!("CLANG_OF_THE_BUILD"))
            .args(["-target", "bpf", "-g", "-O2", "-c", "-o"])
            .args([&object, &source])
            .status()
            .expect("the compiler that made the policies");
        assert!(status.success());
        object
    }

    /// Into its value a descriptor would be written, at the place that another struct has for it.
    #[test]
    fn ops_of_another_kind_are_refused_before_the_kernel_is_asked() {
        let dir = tempfile::tempdir().unwrap();
        let ops = |name: &str| {
            format!(
                "char LICENSE[] __attribute__((section(\"license\"), used)) = \"GPL\";
                struct {name} {{ unsigned long (*mthp_choose)(void); }};
                __attribute__((section(\"struct_ops/choose\"), used))
                unsigned long choose(void) {{ return 0; }}
                __attribute__((section(\".struct_ops.link\"), used))
                struct {name} mine = {{ (void *)choose }};"
            )
        };
        let refused = |declarations: &str| {
            let file = compiled(dir.path(), declarations);
            let result = Programs::read(Some(&file)).map(|_| ());
            result.map_err(|error| (error.code(), error.to_string()))
        };
        assert_eq!(refused(&ops("bpf_mthp_ops")), Ok(()));
        assert_eq!(refused(&ops("bpf_mthp_ops___mine")), Ok(()));
        let (code, said) = refused(&ops("tcp_congestion_ops")).unwrap_err();
        assert_eq!(code, 2);
        assert!(
            said.contains("is of struct tcp_congestion_ops, not"),
            "{said}"
        );
        let none = "__attribute__((section(\"syscall\"), used)) int f(void *c) { return 0; }";
        let (code, said) = refused(none).unwrap_err();
        assert_eq!(code, 2);
        assert!(said.contains("one struct_ops map"), "{said}");
    }

    #[test]
    fn a_policy_that_scans_needs_programs_that_do() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("own.bpf.o");
        let mut bytes = abi::OBJECT.to_vec();
        std::fs::write(&file, &bytes).unwrap();
        assert!(
            Programs::read(Some(&file))
                .unwrap()
                .require_scan("p")
                .is_ok()
        );
        // Under another name it is no program that scans.
        let name = abi::SCAN_PROG.as_bytes();
        for at in 0..bytes.len() - name.len() {
            if bytes[at..].starts_with(name) && bytes[at + name.len()] == 0 {
                bytes[at + name.len() - 1] = b'x';
            }
        }
        std::fs::write(&file, bytes).unwrap();
        let without = Programs::read(Some(&file)).unwrap();
        assert!(without.tunable() && !without.scans());
        let error = without.require_scan("mine").unwrap_err();
        assert_eq!(error.code(), 2);
        assert!(error.to_string().contains("policy mine needs"), "{error}");
    }

    #[test]
    fn the_log_keeps_its_end() {
        for i in 0..5000 {
            keep_log(PrintLevel::Warn, format!("Zeile {i} ä\n"));
        }
        let log = LIBBPF_LOG.lock().unwrap();
        assert!(log.len() <= 5 * LOG_TAIL);
        assert!(log.ends_with("Zeile 4999 ä\n"));
    }
}

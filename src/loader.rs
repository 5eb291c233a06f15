// SPDX-License-Identifier: GPL-2.0-only
//! Loads a policy and attaches it to a cgroup.
//!
//! libbpf (as released) has no cgroup target for struct_ops, and fills the map
//! that holds the ops only while attaching by itself.  So the map is filled
//! here: a program descriptor in the place of the function pointer, all else 0.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use libbpf_rs::{
    CgroupIterOrder, ErrorKind, Iter, Link, MapCore, MapFlags, MapHandle, MapType, Object,
    ObjectBuilder, OpenObject, PrintLevel,
};

use crate::abi::{self, Tunables};
use crate::carrier::{self, Carrier};
use crate::cgroup::Cgroup;
use crate::cli::{Policy, RunArgs};
use crate::errors::{Context, Error, Result};
use crate::orders::Sizes;
use crate::{links, orders};

/// The compiled policies.
fn object_of(policy: Policy) -> &'static [u8] {
    match policy {
        Policy::Adaptive => include_bytes!(concat!(env!("OUT_DIR"), "/adaptive.bpf.o")),
        Policy::Fixed => include_bytes!(concat!(env!("OUT_DIR"), "/fixed.bpf.o")),
        Policy::Headroom => include_bytes!(concat!(env!("OUT_DIR"), "/headroom.bpf.o")),
        Policy::Reactive => include_bytes!(concat!(env!("OUT_DIR"), "/reactive.bpf.o")),
    }
}

/// The end of what libbpf said, kept to explain a failed load.
static LIBBPF_LOG: Mutex<String> = Mutex::new(String::new());

/// How much of it is kept: the verifier prints the reason last.
const LOG_TAIL: usize = 4096;

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

/// A policy at work.  Dropping it detaches it.
pub struct Attached {
    // Declared first, dropped first: no scan outlives the policy.
    scan: Option<Link>,
    link: OwnedFd,
    /// Ring buffer of changed decisions.
    pub events: MapHandle,
    /// What loading took, most of it the verifier's.
    pub load_time: Duration,
    /// The constants it was loaded with.
    pub tunables: Tunables,
    _object: Object,
}

impl Attached {
    /// Loads `args.policy` and attaches it to `root`.
    ///
    /// # Errors
    /// Whatever the kernel refuses; nothing is attached then.
    pub fn new(args: &RunArgs, carrier: &Carrier, root: &Cgroup) -> Result<Self> {
        libbpf_rs::set_print(Some((PrintLevel::Info, keep_log)));
        let program_offset = carrier.program_offset()?;
        let mut open = ObjectBuilder::default()
            .name(args.policy.name())
            .and_then(|builder| builder.open_memory(object_of(args.policy)))
            .map_err(|e| load_error(args.policy, e))?;
        let tunables = set_tunables(&mut open, args)?;
        let begun = Instant::now();
        let mut object = open.load().map_err(|e| load_error(args.policy, e))?;
        let load_time = begun.elapsed();

        fill_ops(&object, args.policy, program_offset)?;
        let directory =
            File::open(&root.path).context(|| format!("opening {}", root.path.display()))?;
        let scan = scan_link(&mut object, directory.as_fd(), args.policy)?;
        let events = MapHandle::try_from(&map(&object, args.policy, abi::EVENTS_MAP)?)
            .map_err(|e| load_error(args.policy, e))?;
        let ops = map(&object, args.policy, args.policy.name())?;
        let link = carrier.attach(ops.as_fd(), directory.as_fd(), &root.path)?;
        Ok(Attached {
            scan,
            link,
            events,
            load_time,
            tunables,
            _object: object,
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
        let Some(link) = &self.scan else {
            return Ok(());
        };
        let iter = Iter::new(link).map_err(|e| Error::Scan {
            source: io::Error::new(e.kind().into_io(), e.to_string()),
        })?;
        drain(iter).map_err(|source| Error::Scan { source })
    }

    /// Detaches now, so that nothing is left when the caller says so.
    pub fn detach(self) {
        carrier::detach(&self.link);
    }
}

impl AsFd for Attached {
    /// The link: it hangs up when its cgroup is removed.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}

/// How often an interrupted read is tried again.
const RETRIES: u32 = 16;

/// Reads to the end.  The scan writes nothing; reading is what runs it.
fn drain(mut from: impl Read) -> io::Result<()> {
    let mut buffer = [0; 64];
    let mut left = RETRIES;
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
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
}

trait IntoIo {
    fn into_io(self) -> io::ErrorKind;
}

impl IntoIo for ErrorKind {
    fn into_io(self) -> io::ErrorKind {
        match self {
            ErrorKind::PermissionDenied => io::ErrorKind::PermissionDenied,
            ErrorKind::Interrupted => io::ErrorKind::Interrupted,
            ErrorKind::WouldBlock => io::ErrorKind::WouldBlock,
            ErrorKind::NotFound => io::ErrorKind::NotFound,
            _ => io::ErrorKind::Other,
        }
    }
}

fn load_error(policy: Policy, source: libbpf_rs::Error) -> Error {
    if source.kind() == ErrorKind::PermissionDenied {
        return Error::NoPrivilege {
            what: "load BPF programs".to_owned(),
        };
    }
    let log = LIBBPF_LOG.lock().map(|log| log.clone()).unwrap_or_default();
    let log = if log.is_empty() {
        log
    } else {
        format!("\n{}", log.trim_end())
    };
    Error::Load {
        policy: policy.name().to_owned(),
        source,
        log,
    }
}

fn mismatch(policy: Policy, what: &str) -> Error {
    load_error(
        policy,
        libbpf_rs::Error::from(io::Error::new(io::ErrorKind::InvalidData, what)),
    )
}

/// Writes the options into .rodata, over the constants the policy brings along.
fn set_tunables(open: &mut OpenObject, args: &RunArgs) -> Result<Tunables> {
    for mut map in open.maps_mut() {
        if !map.name().to_string_lossy().ends_with(".rodata") {
            continue;
        }
        let own: Tunables = map
            .initial_value()
            .and_then(abi::from_bytes)
            .ok_or_else(|| mismatch(args.policy, "its tunables have another layout"))?;
        let sizes = Sizes::of_this_machine();
        let fills = orders::khugepaged_fills(Path::new(orders::THP_SYSFS), sizes.page_shift);
        let tunables = args.tunables(&own, &sizes, fills);
        return map
            .set_initial_value(abi::as_bytes(&tunables))
            .map(|()| tunables)
            .map_err(|e| load_error(args.policy, e));
    }
    Err(mismatch(args.policy, "it has no tunables"))
}

fn map<'o>(object: &'o Object, policy: Policy, name: &str) -> Result<libbpf_rs::Map<'o>> {
    object
        .maps()
        .find(|m| m.name() == OsStr::new(name))
        .ok_or_else(|| mismatch(policy, &format!("it has no map {name}")))
}

/// Gives the kernel the ops: one update of element 0.
fn fill_ops(object: &Object, policy: Policy, program_offset: usize) -> Result<()> {
    let ops = map(object, policy, policy.name())?;
    if ops.map_type() != MapType::StructOps {
        return Err(mismatch(policy, "its ops are no struct_ops map"));
    }
    let choose = format!("{}_choose", policy.name());
    let program = object
        .progs()
        .find(|p| p.name() == OsStr::new(&choose))
        .ok_or_else(|| mismatch(policy, "it has no mthp_choose"))?;
    let fd = u64::try_from(program.as_fd().as_raw_fd()).unwrap_or_default();
    let mut value = vec![0; ops.value_size() as usize];
    value
        .get_mut(program_offset..program_offset + 8)
        .ok_or_else(|| mismatch(policy, "the kernel's ops are shorter than its BTF says"))?
        .copy_from_slice(&fd.to_ne_bytes());
    ops.update(&0u32.to_ne_bytes(), &value, MapFlags::ANY)
        .map_err(|e| load_error(policy, e))
}

/// The scan's link; `None` for a policy that has no scan.
fn scan_link(object: &mut Object, root: BorrowedFd<'_>, policy: Policy) -> Result<Option<Link>> {
    let Some(program) = object
        .progs_mut()
        .find(|p| p.name() == OsStr::new(abi::SCAN_PROG))
    else {
        return Ok(None);
    };
    let mut opts = libbpf_rs::CgroupIterOpts::from_fd(root);
    opts.order = CgroupIterOrder::DescendantsPre;
    program
        .attach_iter_with_opts(libbpf_rs::IterOpts::Cgroup(opts))
        .map(Some)
        .map_err(|e| load_error(policy, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails with `kind`, `times` times, then ends.
    struct Failing {
        kind: io::ErrorKind,
        times: u32,
    }

    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            if self.times == 0 {
                return Ok(0);
            }
            self.times -= 1;
            Err(self.kind.into())
        }
    }

    #[test]
    fn a_short_interruption_is_read_over() {
        for kind in [io::ErrorKind::Interrupted, io::ErrorKind::WouldBlock] {
            assert!(drain(Failing { kind, times: 3 }).is_ok());
        }
    }

    /// The proposal's loop never ended when read() kept failing.
    #[test]
    fn an_endless_interruption_ends() {
        for kind in [io::ErrorKind::Interrupted, io::ErrorKind::WouldBlock] {
            let error = drain(Failing {
                kind,
                times: u32::MAX,
            })
            .unwrap_err();
            assert_eq!(error.kind(), kind);
        }
    }

    #[test]
    fn any_other_error_ends_at_once() {
        let mut from = Failing {
            kind: io::ErrorKind::InvalidInput,
            times: 2,
        };
        assert!(drain(&mut from).is_err());
        assert_eq!(from.times, 1);
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

// SPDX-License-Identifier: GPL-2.0-only
//! The policy that writes down what it is asked: bpf/recorder.bpf.c.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use libbpf_rs::{Map, MapCore, MapFlags, Object, ObjectBuilder};

use crate::carrier;
use lab_guest::failure::Failure;

const CALLS: usize = 64;
const WORDS: usize = 6;
/// keep, more, asked.
const BEFORE: usize = 3;

/// One question.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub cgrp: u64,
    pub attached: u64,
    pub reason: u64,
    pub flags: u64,
    pub orders: u64,
    pub pid: u64,
}

/// The loaded program with its record.
pub struct Recorder {
    object: Object,
}

/// Ops of their own for the recorder's program.
pub struct Ops(OwnedFd);

impl Ops {
    /// Puts them to work on a cgroup.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn link(&self, path: &Path) -> io::Result<OwnedFd> {
        self.link_open(&File::open(path)?)
    }

    /// The same on an open cgroup, which may be gone.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn link_open(&self, group: &File) -> io::Result<OwnedFd> {
        carrier::link(self.0.as_fd(), group)
    }

    /// Puts them in the place of those that a link has.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn replace(&self, link: &OwnedFd) -> io::Result<()> {
        carrier::update(link.as_fd(), self.0.as_fd())
    }
}

fn libbpf(what: &str) -> impl Fn(libbpf_rs::Error) -> Failure {
    move |error| Failure::other(what, error.to_string())
}

impl Recorder {
    /// Loads it. Until told otherwise it allows everything.
    ///
    /// # Errors
    /// The kernel refuses it, or has no hook.
    pub fn load() -> Result<Self, Failure> {
        let bytes = include_bytes!(concat!(env!("OUT_DIR"), "/recorder.bpf.o"));
        let object = ObjectBuilder::default()
            .open_memory(bytes)
            .and_then(libbpf_rs::OpenObject::load)
            .map_err(libbpf("load the recorder"))?;
        let recorder = Self { object };
        recorder.answer(!0, 0)?;
        Ok(recorder)
    }

    /// Loads it for a cgroup, and attaches it there until the link is dropped.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn at(path: &Path) -> Result<(Self, OwnedFd), Failure> {
        let recorder = Self::filled(path)?;
        let link = recorder
            .link(path)
            .map_err(|e| Failure::new(format!("attach to {}", path.display()), e))?;
        Ok((recorder, link))
    }

    /// Loads it for a cgroup.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn filled(path: &Path) -> Result<Self, Failure> {
        let recorder = Self::load()?;
        carrier::fill(&recorder.map("record_ops")?, recorder.program()?, path)?;
        Ok(recorder)
    }

    /// Fills the ops for the cgroup at `path`, with `procs` to show the right.
    ///
    /// # Errors
    /// The kernel's errno, in the inner result.
    pub fn fill_with(&self, path: &Path, procs: &File) -> Result<io::Result<()>, Failure> {
        let ops = self.map("record_ops")?;
        Ok(carrier::fill_with(&ops, self.program()?, path, procs))
    }

    fn program(&self) -> Result<BorrowedFd<'_>, Failure> {
        let program = self.object.progs().next();
        let program = program.ok_or_else(|| Failure::other("find the program", "there is none"))?;
        // SAFETY: the object keeps it open as long as it lives itself.
        Ok(unsafe { BorrowedFd::borrow_raw(program.as_fd().as_raw_fd()) })
    }

    /// One system call.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn link(&self, path: &Path) -> io::Result<OwnedFd> {
        let ops = self
            .map("record_ops")
            .map_err(|e| io::Error::other(e.to_string()))?;
        carrier::link(ops.as_fd(), &File::open(path)?)
    }

    /// Takes the place of what a link has.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn replace(&self, link: &OwnedFd) -> io::Result<()> {
        let ops = self
            .map("record_ops")
            .map_err(|e| io::Error::other(e.to_string()))?;
        carrier::update(link.as_fd(), ops.as_fd())
    }

    /// Another map of ops with the same program, for a cgroup. Only with the module, whose maps are for one each.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn ops_for(&self, path: &Path) -> Result<Ops, Failure> {
        let fail = |what: &str| {
            let what = format!("{what} for {}", path.display());
            move |error| Failure::new(what, error)
        };
        let map = self.map("record_ops")?;
        let made = carrier::map_like(map.as_fd()).map_err(fail("make a map"))?;
        let procs = File::options()
            .write(true)
            .open(path.join("cgroup.procs"))
            .map_err(fail("open cgroup.procs"))?;
        let size = map.value_size() as usize;
        carrier::fill_raw(made.as_fd(), size, self.program()?, path, &procs)
            .map_err(fail("fill the ops"))?;
        Ok(Ops(made))
    }

    fn map(&self, name: &str) -> Result<Map<'_>, Failure> {
        self.object
            .maps()
            .find(|map| map.name().to_string_lossy().ends_with(name))
            .ok_or_else(|| Failure::other("find a map", format!("there is no {name}")))
    }

    /// From now on: these of what is offered, and those beside. Forgets what it was asked.
    ///
    /// # Errors
    /// The record cannot be written.
    pub fn answer(&self, keep: u64, more: u64) -> Result<(), Failure> {
        let record = self.map(".bss")?;
        let mut value = vec![0; record.value_size() as usize];
        for (place, word) in value.chunks_exact_mut(8).zip([keep, more]) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        record
            .update(&0u32.to_ne_bytes(), &value, MapFlags::ANY)
            .map_err(libbpf("write the record"))
    }

    /// What it was asked since.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn calls(&self) -> Result<Vec<Call>, Failure> {
        let value = self
            .map(".bss")?
            .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(libbpf("read the record"))?
            .unwrap_or_default();
        let words: Vec<u64> = value
            .chunks_exact(8)
            .filter_map(|word| word.first_chunk().map(|word| u64::from_ne_bytes(*word)))
            .collect();
        let asked = usize::try_from(words.get(2).copied().unwrap_or_default()).unwrap_or(CALLS);
        let calls = words
            .get(BEFORE..)
            .unwrap_or_default()
            .chunks_exact(WORDS)
            .take(asked.min(CALLS));
        Ok(calls
            .filter_map(|call| match *call {
                [cgrp, attached, reason, flags, orders, pid] => Some(Call {
                    cgrp,
                    attached,
                    reason,
                    flags,
                    orders,
                    pid,
                }),
                _ => None,
            })
            .collect())
    }
}

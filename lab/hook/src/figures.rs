// SPDX-License-Identifier: GPL-2.0-only
//! What the carrier's kfuncs return for a cgroup: bpf/figures.bpf.c.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::time::Duration;

use libbpf_rs::{Object, ObjectBuilder};

use crate::carrier;
use lab_guest::failure::Failure;

/// As the program has them.
const WORDS: usize = 8;

/// The loaded program.
pub struct Program {
    object: Object,
}

/// Figures of one cgroup.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// The kernel refused to bring its stall up to date.
    pub refused: bool,
    /// Stall so far of one task at least.
    pub some: Duration,
    /// Stall so far of all tasks at once.
    pub full: Duration,
    /// Pages of page cache that reclaim would drop first.
    pub cold: u64,
    /// Pages on its own lists of anonymous memory.
    pub anon: u64,
    /// Pages of the machine.
    pub total: u64,
    /// Pages of it that are left.
    pub spare: u64,
}

impl Program {
    /// Loads it.
    ///
    /// # Errors
    /// The kernel refuses it, or has no such kfuncs.
    pub fn load() -> Result<Self, Failure> {
        let bytes = include_bytes!(concat!(env!("OUT_DIR"), "/figures.bpf.o"));
        let object = ObjectBuilder::default()
            .open_memory(bytes)
            .and_then(libbpf_rs::OpenObject::load)
            .map_err(|e| Failure::other("load the program that calls kfuncs", e.to_string()))?;
        Ok(Self { object })
    }

    /// Those of the cgroup at `path`; `flush`: its stall is brought up to date first.
    ///
    /// # Errors
    /// There is no such cgroup, or the program cannot be run.
    pub fn of(&self, path: &Path, flush: bool) -> Result<Figures, Failure> {
        let what = || format!("read the figures of {}", path.display());
        let fail = |e: io::Error| Failure::new(what(), e);
        let mut words = [0u64; WORDS];
        words[0] = carrier::id(path).map_err(fail)?;
        words[1] = flush.into();
        let none = self.run(&mut words).map_err(fail)?;
        if none != 0 {
            return Err(Failure::other(what(), "there is no such cgroup"));
        }
        let [_, refused, some, full, cold, anon, total, spare] = words;
        Ok(Figures {
            refused: flush && refused != 0,
            some: Duration::from_nanos(some),
            full: Duration::from_nanos(full),
            cold,
            anon,
            total,
            spare,
        })
    }

    fn run(&self, words: &mut [u64; WORDS]) -> io::Result<u32> {
        let program = self.object.progs().next();
        let program = program.ok_or_else(|| io::Error::other("there is no program"))?;
        let mut opts = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
            ctx_in: words.as_mut_ptr().cast(),
            ctx_size_in: size_of_val(words) as u32,
            ..Default::default()
        };
        // SAFETY: the descriptor is open; the kernel reads and writes the words within their length.
        let ret = unsafe {
            libbpf_sys::bpf_prog_test_run_opts(program.as_fd().as_raw_fd(), &raw mut opts)
        };
        match ret {
            0 => Ok(opts.retval),
            _ => Err(io::Error::from_raw_os_error(-ret)),
        }
    }
}

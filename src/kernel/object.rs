// SPDX-License-Identifier: GPL-2.0-only
//! What a loaded BPF object has, by name, and how one of its programs is run.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use libbpf_rs::{MapCore, Object};

use crate::errors::{Context, Result};

/// A program that is loaded.
fn program<'o>(object: &'o Object, name: &str) -> Option<libbpf_rs::Program<'o>> {
    let mut loaded = object.progs().filter(|p| p.autoload());
    loaded.find(|p| p.name() == OsStr::new(name))
}

/// A map of it.
pub(super) fn map<'o>(object: &'o Object, name: &str) -> Option<libbpf_rs::Map<'o>> {
    object.maps().find(|m| m.name() == OsStr::new(name))
}

/// A descriptor of a program; `None` where it is not loaded.
pub(super) fn descriptor(object: &Object, name: &str) -> Result<Option<OwnedFd>> {
    program(object, name)
        .map(|p| p.as_fd().try_clone_to_owned())
        .transpose()
        .context(|| format!("keeping the program {name}"))
}

/// Runs a syscall program once and returns what it returns.  It may write to its context.
///
/// # Errors
/// The kernel's errno.
pub(super) fn run_program(program: BorrowedFd<'_>, context: &mut [u8]) -> io::Result<u32> {
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

// SPDX-License-Identifier: GPL-2.0-only
//! Programs that are loaded when the policy is in force: those that only user space runs.
//!
//! libbpf loads all programs of an object at once, and the kernel takes as long for one that
//! scans as for the one that decides.  So libbpf makes all of them ready, and loads what must be
//! there first; the others are loaded here, as it would have done.

use std::ffi::CString;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use libbpf_rs::{AsRawLibbpf, Object, OpenObject, ProgramType};
use libbpf_sys::{bpf_insn, bpf_prog_load_opts};

use super::programs::LOG_TAIL;

/// The licence of what is built in, as the object has it.
const LICENSE: &str = "GPL";

/// A call of a kernel function; one of a module's has an index of that in `off`.
const CALL: u8 = 0x85;
const PSEUDO_KFUNC_CALL: u8 = 2;

/// Makes all programs ready, and leaves those of these names out of what `load` loads; none if
/// one of them needs more than is known here.  Those that were left out.
///
/// # Errors
/// Whatever libbpf or the kernel answers.
pub fn set_aside(open: &mut OpenObject, names: &[&'static str]) -> io::Result<Vec<&'static str>> {
    // SAFETY: the object is open, and of nobody else.
    match unsafe { libbpf_sys::bpf_object__prepare(open.as_libbpf_object().as_ptr()) } {
        0 => {}
        error => return Err(io::Error::from_raw_os_error(-error)),
    }
    let (mut late, mut aside) = (Vec::new(), Vec::new());
    for program in open.progs_mut().filter(|program| program.autoload()) {
        if let Some(name) = names.iter().find(|name| program.name() == **name) {
            aside.push(*name);
            late.push(program);
        }
    }
    let is_plain =
        |insn: &bpf_insn| insn.code != CALL || insn.src_reg() != PSEUDO_KFUNC_CALL || insn.off == 0;
    for program in &late {
        let syscall = program.prog_type() == ProgramType::Syscall;
        if !syscall || !program.insns().iter().all(is_plain) {
            return Ok(Vec::new());
        }
    }
    for program in &mut late {
        program.set_autoload(false);
    }
    Ok(aside)
}

/// Loads one that was set aside; `None` if the object has none of this name.
///
/// # Errors
/// The kernel's errno, and what its verifier says.
pub fn load(object: &Object, name: &str) -> Result<Option<OwnedFd>, (io::Error, String)> {
    let Some(program) = object.progs().find(|program| program.name() == name) else {
        return Ok(None);
    };
    let text = |text: &str| CString::new(text).map_err(|e| (io::Error::other(e), String::new()));
    let (name, license) = (text(name)?, text(LICENSE)?);
    let (raw, insns) = (program.as_libbpf_object().as_ptr(), program.insns());
    // SAFETY: object and program live through the calls.
    let mut opts = unsafe {
        bpf_prog_load_opts {
            sz: size_of::<bpf_prog_load_opts>() as libbpf_sys::size_t,
            prog_btf_fd: libbpf_sys::bpf_object__btf_fd(object.as_libbpf_object().as_ptr()) as u32,
            prog_flags: libbpf_sys::bpf_program__flags(raw) | libbpf_sys::BPF_F_SLEEPABLE,
            func_info: libbpf_sys::bpf_program__func_info(raw).cast(),
            func_info_cnt: libbpf_sys::bpf_program__func_info_cnt(raw),
            func_info_rec_size: size_of::<libbpf_sys::bpf_func_info>() as u32,
            line_info: libbpf_sys::bpf_program__line_info(raw).cast(),
            line_info_cnt: libbpf_sys::bpf_program__line_info_cnt(raw),
            line_info_rec_size: size_of::<libbpf_sys::bpf_line_info>() as u32,
            ..Default::default()
        }
    };
    let mut load = |log: &mut [u8]| {
        if !log.is_empty() {
            opts.log_level = 1;
            opts.log_buf = log.as_mut_ptr().cast();
            opts.log_size = log.len() as u32;
        }
        // SAFETY: all that is pointed to lives through the call.
        let fd = unsafe {
            libbpf_sys::bpf_prog_load(
                libbpf_sys::BPF_PROG_TYPE_SYSCALL,
                name.as_ptr(),
                license.as_ptr(),
                insns.as_ptr(),
                insns.len() as libbpf_sys::size_t,
                &raw mut opts,
            )
        };
        match fd {
            // SAFETY: just made by the kernel, owned by nobody else.
            0.. => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
            error => Err(io::Error::from_raw_os_error(-error)),
        }
    };
    let error = match load(&mut []) {
        Ok(fd) => return Ok(Some(fd)),
        Err(error) => error,
    };
    // Once more, to hear why: the kernel keeps the end of what it says.
    let mut log = vec![0; 4 * LOG_TAIL];
    if let Ok(fd) = load(&mut log) {
        return Ok(Some(fd));
    }
    let log = String::from_utf8_lossy(&log);
    Err((error, log.trim_end_matches('\0').to_owned()))
}

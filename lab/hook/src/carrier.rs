// SPDX-License-Identifier: GPL-2.0-only
//! How a policy gets to its cgroup: a link has a target with the kernel series; with the module for stock kernels the
//! ops name the cgroup.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use libbpf_rs::MapCore;

use lab_guest::failure::Failure;

/// What the module shows of its types.
const MODULE_BTF: &str = "/sys/kernel/btf/mthp_hook";
/// BPF_F_CGROUP_FD: target_fd of a struct_ops link is a cgroup.
const BPF_F_CGROUP_FD: u32 = 1 << 7;
/// Where the ops begin in the value of a struct_ops map: after its state, on the next cache line. The kernel
/// refuses a value with a program descriptor anywhere else.
const PROGRAM: usize = 64;
/// Behind it, with the module: the id of the cgroup, and its cgroup.procs, open for writing.
const CGROUP: usize = 72;
const PROCS: usize = 80;

/// Is it the module that carries the hook?
pub fn by_module() -> bool {
    Path::new(MODULE_BTF).exists()
}

/// Id of the cgroup at `path`.
///
/// # Errors
/// There is none.
pub fn id(path: &Path) -> io::Result<u64> {
    Ok(path.metadata()?.ino())
}

/// Gives the kernel the ops, for the cgroup at `path`. libbpf does so only while it attaches without a cgroup.
///
/// # Errors
/// What the kernel refuses.
pub fn fill(map: &impl MapCore, program: BorrowedFd<'_>, path: &Path) -> Result<(), Failure> {
    let what = || format!("fill the ops for {}", path.display());
    let procs = OpenOptions::new()
        .write(true)
        .open(path.join("cgroup.procs"))
        .map_err(|e| Failure::new(what(), e))?;
    fill_with(map, program, path, &procs).map_err(|e| Failure::new(what(), e))
}

/// The same, with a file of one's own to show the right.
///
/// # Errors
/// The kernel's errno.
pub fn fill_with(
    map: &impl MapCore,
    program: BorrowedFd<'_>,
    path: &Path,
    procs: &File,
) -> io::Result<()> {
    fill_raw(map.as_fd(), map.value_size() as usize, program, path, procs)
}

/// The same for a map by its descriptor, with values of `size` bytes.
///
/// # Errors
/// The kernel's errno.
pub fn fill_raw(
    map: BorrowedFd<'_>,
    size: usize,
    program: BorrowedFd<'_>,
    path: &Path,
    procs: &File,
) -> io::Result<()> {
    let mut value = vec![0; size];
    let mut put = |at: usize, bytes: &[u8]| {
        let place = value.get_mut(at..at + bytes.len());
        place
            .map(|place| place.copy_from_slice(bytes))
            .ok_or_else(|| io::Error::other("the ops are too small"))
    };
    put(PROGRAM, &i64::from(program.as_raw_fd()).to_ne_bytes())?;
    if by_module() {
        put(CGROUP, &id(path)?.to_ne_bytes())?;
        put(PROCS, &procs.as_raw_fd().to_ne_bytes())?;
    }
    // Not MapCore::update(): its error has no errno.
    let key = 0u32;
    // SAFETY: key and value are as long as those of the map, and live through the call.
    let ret = unsafe {
        libbpf_sys::bpf_map_update_elem(
            map.as_raw_fd(),
            (&raw const key).cast(),
            value.as_ptr().cast(),
            0,
        )
    };
    match ret {
        0 => Ok(()),
        _ => Err(io::Error::from_raw_os_error(-ret)),
    }
}

/// Puts the ops in `map` to work on an open cgroup, until the link is closed: one system call.
///
/// # Errors
/// The kernel's errno.
pub fn link(map: BorrowedFd<'_>, group: &File) -> io::Result<OwnedFd> {
    let (flags, target) = match by_module() {
        true => (0, 0),
        false => (BPF_F_CGROUP_FD, group.as_raw_fd()),
    };
    let opts = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
        flags,
        ..Default::default()
    };
    // SAFETY: both descriptors are open, and the options live through the call.
    let fd = unsafe {
        libbpf_sys::bpf_link_create(
            map.as_raw_fd(),
            target,
            libbpf_sys::BPF_STRUCT_OPS,
            &raw const opts,
        )
    };
    owned(fd)
}

/// Puts the ops in another map into the place of those that a link has.
///
/// # Errors
/// The kernel's errno.
pub fn update(link: BorrowedFd<'_>, map: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: both descriptors are open; there are no options to read.
    let ret =
        unsafe { libbpf_sys::bpf_link_update(link.as_raw_fd(), map.as_raw_fd(), std::ptr::null()) };
    match ret {
        0 => Ok(()),
        _ => Err(io::Error::from_raw_os_error(-ret)),
    }
}

fn owned(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the kernel has just made it, and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Another struct_ops map of the type of `map`, which is the module's.
///
/// # Errors
/// The kernel's errno.
pub fn map_like(map: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut info = libbpf_sys::bpf_map_info::default();
    let mut len = size_of::<libbpf_sys::bpf_map_info>() as u32;
    // SAFETY: the buffer is as long as is said, and lives through the call.
    let ret = unsafe {
        libbpf_sys::bpf_obj_get_info_by_fd(map.as_raw_fd(), (&raw mut info).cast(), &raw mut len)
    };
    if ret != 0 {
        return Err(io::Error::from_raw_os_error(-ret));
    }
    // SAFETY: takes a number, returns a descriptor or an error.
    let types = |id| owned(unsafe { libbpf_sys::bpf_btf_get_fd_by_id(id) });
    let (own, btf) = (types(info.btf_id)?, types(info.btf_vmlinux_id)?);
    let opts = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        // The kernel looks that the object has types, too.
        btf_fd: own.as_raw_fd() as u32,
        btf_vmlinux_value_type_id: info.btf_vmlinux_value_type_id,
        map_flags: info.map_flags,
        value_type_btf_obj_fd: btf.as_raw_fd(),
        ..Default::default()
    };
    // SAFETY: the name is a string, and the options live through the call.
    owned(unsafe {
        libbpf_sys::bpf_map_create(
            libbpf_sys::BPF_MAP_TYPE_STRUCT_OPS,
            c"stress".as_ptr(),
            info.key_size,
            info.value_size,
            info.max_entries,
            &raw const opts,
        )
    })
}

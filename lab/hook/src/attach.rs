// SPDX-License-Identifier: GPL-2.0-only
//! Attaches the yardstick programs.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder};

use lab_guest::failure::Failure;

/// BPF_F_CGROUP_FD: target_fd of a struct_ops link is a cgroup.
const BPF_F_CGROUP_FD: u32 = 1 << 7;
/// Where the ops begin in the value of a struct_ops map: after its state, on the next cache line. The kernel
/// refuses a value with a program descriptor anywhere else.
const OPS_OFFSET: usize = 64;

/// The loaded programs.
pub struct Yardstick {
    object: Object,
}

fn libbpf(what: &str) -> impl Fn(libbpf_rs::Error) -> Failure {
    move |error| Failure::other(what, error.to_string())
}

impl Yardstick {
    /// Loads the programs; attaches none.
    ///
    /// # Errors
    /// The kernel refuses them, or has no hook.
    pub fn load() -> Result<Self, Failure> {
        let bytes = include_bytes!(concat!(env!("OUT_DIR"), "/yardstick.bpf.o"));
        let object = ObjectBuilder::default()
            .open_memory(bytes)
            .and_then(libbpf_rs::OpenObject::load)
            .map_err(libbpf("load the yardstick programs"))?;
        let yardstick = Self { object };
        for name in ["empty", "refuse", "count"] {
            yardstick.fill(name)?;
        }
        Ok(yardstick)
    }

    fn map(&self, name: &str) -> Result<libbpf_rs::Map<'_>, Failure> {
        self.object
            .maps()
            .find(|map| {
                map.name() == OsStr::new(name) || map.name().to_string_lossy().ends_with(name)
            })
            .ok_or_else(|| Failure::other("find a map", format!("there is no {name}")))
    }

    /// Gives the kernel the ops. libbpf does so only while it attaches without a cgroup.
    fn fill(&self, name: &str) -> Result<(), Failure> {
        let wanted = format!("{name}_choose");
        let program = self
            .object
            .progs()
            .find(|program| program.name() == OsStr::new(&wanted))
            .ok_or_else(|| Failure::other("find a program", format!("there is no {wanted}")))?;
        let fd = u64::try_from(program.as_fd().as_raw_fd()).unwrap_or_default();
        let map = self.map(name)?;
        let mut value = vec![0; map.value_size() as usize];
        value
            .get_mut(OPS_OFFSET..OPS_OFFSET + 8)
            .ok_or_else(|| Failure::other("fill the ops", "their map is too small"))?
            .copy_from_slice(&fd.to_ne_bytes());
        map.update(&0u32.to_ne_bytes(), &value, MapFlags::ANY)
            .map_err(libbpf("fill the ops"))
    }

    /// Attaches the program `name` to the cgroup at `path`, until the link is dropped.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn attach(&self, name: &str, path: &Path) -> Result<OwnedFd, Failure> {
        let group =
            File::open(path).map_err(|e| Failure::new(format!("open {}", path.display()), e))?;
        self.link(name, &group)
            .map_err(|e| Failure::new(format!("attach to {}", path.display()), e))
    }

    /// The same for an open cgroup: one system call.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn link(&self, name: &str, group: &File) -> io::Result<OwnedFd> {
        let map = self
            .map(name)
            .map_err(|e| io::Error::other(e.to_string()))?;
        let opts = libbpf_sys::bpf_link_create_opts {
            sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
            flags: BPF_F_CGROUP_FD,
            ..Default::default()
        };
        // SAFETY: both descriptors are open, and the options live through the call.
        let fd = unsafe {
            libbpf_sys::bpf_link_create(
                map.as_fd().as_raw_fd(),
                group.as_raw_fd(),
                libbpf_sys::BPF_STRUCT_OPS,
                &raw const opts,
            )
        };
        if fd < 0 {
            return Err(io::Error::from_raw_os_error(-fd));
        }
        // SAFETY: the kernel has just made it, and nobody else owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// How often the counting program was asked since it was loaded.
    ///
    /// # Errors
    /// The count cannot be read.
    pub fn calls(&self) -> Result<u64, Failure> {
        let value = self
            .map(".bss")?
            .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(libbpf("read the count"))?
            .unwrap_or_default();
        value
            .first_chunk()
            .map(|bytes| u64::from_ne_bytes(*bytes))
            .ok_or_else(|| Failure::other("read the count", "it is not there"))
    }
}

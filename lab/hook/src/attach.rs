// SPDX-License-Identifier: GPL-2.0-only
//! Attaches the yardstick programs.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder};

use crate::carrier;
use lab_guest::failure::Failure;

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
        let yardstick = Self::open()?;
        // With the module a map is for one cgroup, so each attachment has one of its own.
        if !carrier::by_module() {
            for name in ["empty", "refuse", "count"] {
                yardstick.fill(name, Path::new(crate::groups::ROOT))?;
            }
        }
        Ok(yardstick)
    }

    fn open() -> Result<Self, Failure> {
        let bytes = include_bytes!(concat!(env!("OUT_DIR"), "/yardstick.bpf.o"));
        let object = ObjectBuilder::default()
            .open_memory(bytes)
            .and_then(libbpf_rs::OpenObject::load)
            .map_err(libbpf("load the yardstick programs"))?;
        Ok(Self { object })
    }

    fn map(&self, name: &str) -> Result<libbpf_rs::Map<'_>, Failure> {
        self.object
            .maps()
            .find(|map| {
                map.name() == OsStr::new(name) || map.name().to_string_lossy().ends_with(name)
            })
            .ok_or_else(|| Failure::other("find a map", format!("there is no {name}")))
    }

    fn fill(&self, name: &str, path: &Path) -> Result<(), Failure> {
        let wanted = format!("{name}_choose");
        let program = self
            .object
            .progs()
            .find(|program| program.name() == OsStr::new(&wanted))
            .ok_or_else(|| Failure::other("find a program", format!("there is no {wanted}")))?;
        carrier::fill(&self.map(name)?, program.as_fd(), path)
    }

    /// Attaches the program `name` to the cgroup at `path`, until the link is dropped.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn attach(&self, name: &str, path: &Path) -> Result<OwnedFd, Failure> {
        let group =
            File::open(path).map_err(|e| Failure::new(format!("open {}", path.display()), e))?;
        let own = carrier::by_module().then(Self::open).transpose()?;
        if let Some(own) = &own {
            own.fill(name, path)?;
        }
        own.as_ref()
            .unwrap_or(self)
            .link(name, &group)
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
        carrier::link(map.as_fd(), group)
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

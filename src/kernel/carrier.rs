// SPDX-License-Identifier: GPL-2.0-only
//! What carries the hook into the kernel, probed once.
//!
//! The hook has one contract and two carriers: the kernel series, and a module
//! for stock kernels (module/), whose links have no cgroup target.  Everything in
//! which they differ belongs here, but what they lack (lacks.rs): where the type lives in BTF, how the value of
//! a struct_ops map is laid out, and how a link gets to its cgroup.
//!
//! A third one, such as struct_ops links to cgroups in a form of Linux' own, takes
//! a variant of [`By`]: what [`Carrier::probe`] knows it by, arms in [`Carrier::name`],
//! [`Carrier::is_ops`], [`Carrier::fill`], [`Carrier::attach`], [`Carrier::cgroup_of`] and
//! [`bound`], its rows in lacks.rs, and what `support` says of it.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use nix::errno::Errno;

use super::abilities::{Abilities, Hook, VALUE_TYPE, cgroup_member, choose};
use super::absent::Absent;
use super::btf::{Kind, Types};
use super::cgroup::{self, Cgroup};
use super::links::LinkInfo;
use super::process::release;
use super::split;
use crate::errors::{Error, Result};
use crate::model::reason::Reason;
use crate::model::shown;

/// The kernel's type information.
pub const VMLINUX_BTF: &str = "/sys/kernel/btf/vmlinux";

/// The struct of the hook.
pub const OPS: &str = "bpf_mthp_ops";

/// `BPF_F_CGROUP_FD`: target_fd of a struct_ops link is a cgroup.
const BPF_F_CGROUP_FD: u32 = 1 << 7;

/// The module's name, and what it shows of itself.
const MODULE: &str = "mthp_hook";
const MODULE_BTF: &str = "/sys/kernel/btf/mthp_hook";
const MODULE_SYSFS: &str = "/sys/module/mthp_hook";

/// Where the module's ops have the id of their cgroup, in the value of a struct_ops map.
const MODULE_CGROUP: usize = 72;

/// Who carries the hook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// The kernel, with the series.
    #[default]
    Series,
    /// The module, on a kernel without it.
    Module,
}

/// The running kernel's carrier of the hook.
pub struct Carrier {
    btf: Types,
    /// Which one it is.
    pub by: By,
    /// What it offers.
    pub abilities: Abilities,
}

impl Carrier {
    /// Reads the kernel's BTF; changes nothing.
    ///
    /// # Errors
    /// [`Error::NoBtf`] if there is none, or a failed system call.
    pub fn probe() -> Result<Self> {
        let kernel = Self::probe_in(Path::new(VMLINUX_BTF))?;
        let module = Path::new(MODULE_BTF);
        if kernel.abilities.hook != Hook::None
            || !module.try_exists().map_err(|e| Error::reading(module, e))?
        {
            return Ok(kernel);
        }
        let joined = split::joined(Path::new(VMLINUX_BTF), Path::new(MODULE_BTF))
            .map_err(|source| no_btf(Path::new(MODULE_BTF), source))?;
        let path = format!("/proc/self/fd/{}", joined.as_raw_fd());
        let mut module = Self::probe_in(Path::new(&path))?;
        if module.abilities.hook == Hook::None {
            // Another module of that name.
            return Ok(kernel);
        }
        module.by = By::Module;
        let abilities = &mut module.abilities;
        if abilities.hook == Hook::Known && cgroup_member(&module.btf) != Some(MODULE_CGROUP) {
            abilities.hook = Hook::Foreign;
        }
        abilities.cgroup_links = true;
        if parameter("swapin").as_deref() == Some("N") {
            abilities.reasons[Reason::Swapin] = false;
        }
        Ok(module)
    }

    fn probe_in(path: &Path) -> Result<Self> {
        let btf = Types::read(path).map_err(|source| no_btf(path, source))?;
        let abilities = Abilities::of(&btf);
        Ok(Carrier {
            btf,
            by: By::Series,
            abilities,
        })
    }

    /// Which carrier it is, and of which version, for people.
    pub fn name(&self) -> String {
        match (self.by, self.abilities.hook) {
            (_, Hook::None) => "none".to_owned(),
            (By::Series, _) => "kernel".to_owned(),
            (By::Module, _) => {
                let version = attribute("version").unwrap_or_default();
                format!("module {MODULE} {version}").trim_end().to_owned()
            }
        }
    }

    /// Has the kernel the hook that the policies are made for?
    ///
    /// # Errors
    /// [`Error::NoHook`] or [`Error::ForeignHook`] if not.
    pub fn require_hook(&self) -> Result<()> {
        match self.abilities.hook {
            Hook::Known => Ok(()),
            Hook::None => Err(no_hook()),
            Hook::Foreign => Err(Error::ForeignHook { release: release() }),
        }
    }

    /// Does the kernel ask at reclaim, so that what was given can be taken back?
    pub fn takes_back(&self) -> bool {
        self.abilities.reasons[Reason::Reclaim]
    }

    /// Offset of the program's place in the value of a struct_ops map.
    ///
    /// # Errors
    /// Those of [`Self::require_hook`].
    pub fn program_offset(&self) -> Result<usize> {
        self.require_hook()?;
        let place = choose(&self.btf).ok_or_else(no_hook)?;
        Ok(place.0)
    }

    /// Type id of the value of a struct_ops map with this hook's ops.
    fn value_type_id(&self) -> Result<u32> {
        let value = self.btf.find(Kind::Struct, VALUE_TYPE);
        let value = value.ok_or_else(no_hook)?;
        Ok(value.id)
    }

    /// Is it a map of this hook's ops?
    ///
    /// # Errors
    /// [`Error::NoHook`] if the kernel does not know the type.
    pub fn is_ops(&self, info: &libbpf_sys::bpf_map_info) -> Result<bool> {
        let same = info.btf_vmlinux_value_type_id == self.value_type_id()?;
        // Types of two modules can have the same id.
        let owner = || self.by == By::Series || btf_is(info.btf_vmlinux_id, MODULE);
        Ok(same && owner())
    }

    /// Gives the kernel the ops: one update of element 0 of the struct_ops map.
    ///
    /// # Errors
    /// Those of [`Self::require_hook`], [`Error::NotWritable`], or what the kernel refuses.
    pub fn fill(
        &self,
        ops: &impl MapCore,
        program: BorrowedFd<'_>,
        root: &Cgroup,
    ) -> Result<libbpf_rs::Result<()>> {
        let mut value = vec![0; ops.value_size() as usize];
        let at = self.program_offset()?;
        // A descriptor is as long as the pointer that the kernel puts there.
        let fd = u64::try_from(program.as_raw_fd()).unwrap_or_default();
        put(&mut value, at, &fd.to_ne_bytes()).ok_or_else(no_hook)?;
        let key = 0u32.to_ne_bytes();
        if self.by == By::Series {
            return Ok(ops.update(&key, &value, MapFlags::ANY));
        }
        // Who may open it may attach: a link to a cgroup asks for the same right.
        let procs = root.path.join("cgroup.procs");
        let procs = OpenOptions::new()
            .write(true)
            .open(procs)
            .map_err(|source| refused(errno_of(&source), &root.path))?;
        put(&mut value, MODULE_CGROUP, &root.id.to_ne_bytes()).ok_or_else(no_hook)?;
        put(
            &mut value,
            MODULE_CGROUP + 8,
            &procs.as_raw_fd().to_ne_bytes(),
        )
        .ok_or_else(no_hook)?;
        Ok(ops.update(&key, &value, MapFlags::ANY))
    }

    /// The cgroup of a link whose ops are `value`; 0 if there is none, or it is gone.
    pub fn cgroup_of(&self, link: &LinkInfo, value: &[u8]) -> u64 {
        match self.by {
            By::Series => link.cgroup_id,
            By::Module => cgroup_in(value),
        }
    }

    /// Makes the link that puts a struct_ops map to work on a cgroup.  The
    /// policy is gone when the last descriptor of the link is closed.
    ///
    /// # Errors
    /// [`Error::AlreadyAttached`], [`Error::NoPrivilege`], [`Error::NotWritable`],
    /// [`Error::NoMemoryController`], or [`Error::System`].
    pub fn attach(
        &self,
        map: BorrowedFd<'_>,
        cgroup: BorrowedFd<'_>,
        at: &Path,
    ) -> Result<OwnedFd> {
        // The module's ops name their cgroup themselves.
        let (flags, target) = match self.by {
            By::Series => (BPF_F_CGROUP_FD, cgroup.as_raw_fd()),
            By::Module => (0, 0),
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
        if fd >= 0 {
            // SAFETY: the kernel has just made it, and nobody else owns it.
            return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        Err(refused(Errno::from_raw(-fd), at))
    }
}

/// Puts another map into the place of the one that a link has, at once.  The cgroup, its id and
/// that of the link stay.
///
/// # Errors
/// Those of [`Carrier::attach`].
pub fn update(link: BorrowedFd<'_>, map: BorrowedFd<'_>, at: &Path) -> Result<()> {
    // SAFETY: both descriptors are open; without options there are none to read.  A map is
    // passed where programs are for other types of links.
    let ret =
        unsafe { libbpf_sys::bpf_link_update(link.as_raw_fd(), map.as_raw_fd(), std::ptr::null()) };
    match ret {
        0 => Ok(()),
        _ => Err(refused(Errno::from_raw(-ret), at)),
    }
}

/// The link with its cgroup, where the kernel does not show it: the module's ops have its id.
/// Of a link that this program has pinned.
///
/// # Errors
/// If its map cannot be read.
pub fn bound(link: LinkInfo) -> io::Result<LinkInfo> {
    if link.cgroup_id != 0 || link.map_id == 0 {
        return Ok(link);
    }
    let read = || {
        let map = MapHandle::from_map_id(link.map_id)?;
        map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
    };
    let value = read().map_err(|e| io::Error::other(e.to_string()))?;
    Ok(LinkInfo {
        cgroup_id: cgroup_in(&value.unwrap_or_default()),
        ..link
    })
}

/// The id of the cgroup in the module's ops.
fn cgroup_in(value: &[u8]) -> u64 {
    let id = value.get(MODULE_CGROUP..MODULE_CGROUP + 8);
    id.and_then(|id| id.try_into().ok())
        .map_or(0, u64::from_ne_bytes)
}

fn put(value: &mut [u8], at: usize, bytes: &[u8]) -> Option<()> {
    value.get_mut(at..at + bytes.len())?.copy_from_slice(bytes);
    Some(())
}

fn errno_of(error: &io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or_default())
}

/// What the module shows of itself in sysfs.
fn attribute(name: &str) -> Option<String> {
    let text = std::fs::read_to_string(Path::new(MODULE_SYSFS).join(name)).ok()?;
    Some(text.trim_end().to_owned())
}

fn parameter(name: &str) -> Option<String> {
    attribute(&format!("parameters/{name}"))
}

/// Is the BTF of this id that of a module?  Without the privilege to look nobody else's is at hand.
fn btf_is(id: u32, module: &str) -> bool {
    // SAFETY: takes a number, returns a descriptor or an error.
    let fd = unsafe { libbpf_sys::bpf_btf_get_fd_by_id(id) };
    if fd < 0 {
        return -fd == Errno::EPERM as i32;
    }
    // SAFETY: the kernel has just made it, and nobody else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut name = [0u8; 64];
    let mut info = libbpf_sys::bpf_btf_info {
        name: name.as_mut_ptr() as u64,
        name_len: name.len() as u32,
        ..Default::default()
    };
    let mut len = size_of::<libbpf_sys::bpf_btf_info>() as u32;
    // SAFETY: the buffers are as long as is said, and live through the call.
    let ret = unsafe {
        libbpf_sys::bpf_obj_get_info_by_fd(fd.as_raw_fd(), (&raw mut info).cast(), &raw mut len)
    };
    ret == 0 && name.split(|&b| b == 0).next() == Some(module.as_bytes())
}

/// Nobody carries the hook.
fn no_hook() -> Error {
    let absent = Absent::here();
    Error::NoHook {
        release: release(),
        cause: absent.cause(),
        remedy: absent.remedy(),
    }
}

/// The kernel has none that this program knows, or what there is cannot be read.
fn no_btf(path: &Path, source: io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::InvalidData => Error::NoBtf {
            path: path.to_owned(),
            source,
        },
        _ => Error::reading(path, source),
    }
}

/// Why the kernel makes no link to a cgroup.
fn refused(errno: Errno, at: &Path) -> Error {
    let source = io::Error::from(errno);
    let path = at.to_owned();
    match errno {
        Errno::EEXIST => Error::AlreadyAttached { path },
        Errno::EPERM => Error::NoPrivilege {
            what: "attach a policy".to_owned(),
        },
        Errno::EACCES | Errno::EROFS => Error::NotWritable { path },
        Errno::ENODEV | Errno::EOPNOTSUPP => Error::NoMemoryController {
            path,
            why: format!("the kernel refused: {source}"),
            remedy: cgroup::ENABLE_MEMORY.to_owned(),
        },
        // Only the module's, which hooks by ftrace and by a tracepoint.
        Errno::EIO => Error::System {
            what: format!(
                "attaching the policy to {} (the kernel's log says what cannot be hooked)",
                shown::path(at)
            ),
            source,
        },
        Errno::EBUSY => Error::System {
            what: format!(
                "attaching the policy to {} (is kernel.ftrace_enabled 0?)",
                shown::path(at)
            ),
            source,
        },
        _ => Error::System {
            what: format!("attaching the policy to {}", shown::path(at)),
            source,
        },
    }
}

/// Detaches a link, even if another process holds it.  A link whose cgroup is
/// gone has nothing left to detach.
pub fn detach(link: &impl AsFd) {
    // SAFETY: the descriptor is open.  The result does not matter: closing the
    // descriptor, which the caller does next, has the same effect.
    let _ = unsafe { libbpf_sys::bpf_link_detach(link.as_fd().as_raw_fd()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_has_its_own_error() {
        let code = |errno| refused(errno, Path::new("/sys/fs/cgroup/a")).code();
        assert_eq!(code(Errno::EEXIST), 8);
        assert_eq!(code(Errno::EPERM), 4);
        assert_eq!(code(Errno::ENODEV), 7);
        assert_eq!(code(Errno::EOPNOTSUPP), 7);
        assert_eq!(code(Errno::EBUSY), 1);
        for errno in [Errno::EACCES, Errno::EROFS] {
            let error = refused(errno, Path::new("/sys/fs/cgroup/a"));
            assert_eq!(error.code(), 4);
            let text = error.to_string();
            assert!(
                text.starts_with("/sys/fs/cgroup/a: no right to change"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_missing_or_broken_btf_is_reported_as_such() {
        let error = Carrier::probe_in(Path::new("/proc/none/btf"))
            .err()
            .unwrap();
        assert_eq!(error.code(), 11);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"no BTF").unwrap();
        assert_eq!(Carrier::probe_in(file.path()).err().unwrap().code(), 11);
    }
}

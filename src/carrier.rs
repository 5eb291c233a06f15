// SPDX-License-Identifier: GPL-2.0-only
//! What carries the hook into the kernel, probed once.
//!
//! The hook has one contract and can have two carriers: the kernel series, and
//! a module for stock kernels whose links have no cgroup target.  Everything in
//! which they differ belongs here: where the type lives in BTF, how the value of
//! a struct_ops map is laid out, and how a link gets to its cgroup.  The module
//! does not exist yet, so a kernel without the series has no hook.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use libbpf_rs::btf::types::{Enum, Func, MemberAttr, Struct};
use libbpf_rs::btf::{Btf, TypeId};

use crate::cgroup;
use crate::errors::{Context, Error, Result};

/// The kernel's type information.
pub const VMLINUX_BTF: &str = "/sys/kernel/btf/vmlinux";

/// The type libbpf knows a struct_ops map by.
const VALUE_TYPE: &str = "bpf_struct_ops_bpf_mthp_ops";

/// `BPF_F_CGROUP_FD`: target_fd of a struct_ops link is a cgroup.
const BPF_F_CGROUP_FD: u32 = 1 << 7;

/// What the kernel's BTF says about the hook and what belongs to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abilities {
    /// `struct bpf_mthp_ops` is a struct_ops type.
    pub hook: bool,
    /// struct_ops links can be attached to cgroups.
    pub cgroup_links: bool,
    /// The PSI kfuncs exist.
    pub stall: bool,
    /// The memory controller's kfuncs exist.
    pub memcg: bool,
    /// Swap-in is a reason of its own.
    pub swapin: bool,
}

/// The running kernel's carrier of the hook.
pub struct Carrier {
    btf: Btf<'static>,
    /// What it offers.
    pub abilities: Abilities,
}

impl Carrier {
    /// Reads the kernel's BTF; changes nothing.
    ///
    /// # Errors
    /// [`Error::NoBtf`] if there is none.
    pub fn probe() -> Result<Self> {
        Self::probe_in(Path::new(VMLINUX_BTF))
    }

    fn probe_in(path: &Path) -> Result<Self> {
        let fail = |source| Error::NoBtf {
            path: PathBuf::from(path),
            source,
        };
        std::fs::File::open(path).map_err(fail)?;
        let btf = Btf::from_path(path)
            .map_err(|e| fail(io::Error::new(io::ErrorKind::InvalidData, e.to_string())))?;
        let func = |name: &str| btf.type_by_name::<Func<'_>>(name).is_some();
        let abilities = Abilities {
            hook: btf.type_by_name::<Struct<'_>>(VALUE_TYPE).is_some(),
            cgroup_links: enum_has(&btf, "BPF_F_CGROUP_FD"),
            stall: func("bpf_cgroup_stall") && func("bpf_cgroup_flush_stats"),
            memcg: func("bpf_get_mem_cgroup") && func("bpf_mem_cgroup_page_state"),
            swapin: enum_has(&btf, "TVA_SWAPIN"),
        };
        Ok(Carrier { btf, abilities })
    }

    /// Offset of the program's place in the value of a struct_ops map.
    ///
    /// # Errors
    /// [`Error::NoHook`] if the kernel does not know the type, or has another
    /// hook under this name.
    pub fn program_offset(&self) -> Result<usize> {
        let no_hook = || Error::NoHook {
            release: crate::support::release(),
        };
        let value: Struct<'_> = self.btf.type_by_name(VALUE_TYPE).ok_or_else(no_hook)?;
        let (data, ty) = member(&value, "data").ok_or_else(no_hook)?;
        let ops: Struct<'_> = self.btf.type_by_id(ty).ok_or_else(no_hook)?;
        let (choose, _) = member(&ops, "mthp_choose").ok_or_else(no_hook)?;
        Ok(data + choose)
    }

    /// Type id of the value of a struct_ops map with this hook's ops.
    ///
    /// # Errors
    /// [`Error::NoHook`] if the kernel does not know the type.
    pub fn value_type_id(&self) -> Result<u32> {
        let value: Struct<'_> = self
            .btf
            .type_by_name(VALUE_TYPE)
            .ok_or_else(|| Error::NoHook {
                release: crate::support::release(),
            })?;
        Ok(value.type_id().into())
    }

    /// Makes the link that puts a struct_ops map to work on a cgroup.  The
    /// policy is gone when the last descriptor of the link is closed.
    ///
    /// # Errors
    /// [`Error::AlreadyAttached`], [`Error::NoPrivilege`],
    /// [`Error::NoMemoryController`], or [`Error::System`].
    pub fn attach(
        &self,
        map: BorrowedFd<'_>,
        cgroup: BorrowedFd<'_>,
        at: &Path,
    ) -> Result<OwnedFd> {
        let opts = libbpf_sys::bpf_link_create_opts {
            sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
            flags: BPF_F_CGROUP_FD,
            ..Default::default()
        };
        // SAFETY: both descriptors are open, and the options live through the call.
        let fd = unsafe {
            libbpf_sys::bpf_link_create(
                map.as_raw_fd(),
                cgroup.as_raw_fd(),
                libbpf_sys::BPF_STRUCT_OPS,
                &raw const opts,
            )
        };
        if fd >= 0 {
            // SAFETY: the kernel has just made it, and nobody else owns it.
            return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        let source = io::Error::from_raw_os_error(-fd);
        let path = at.to_owned();
        Err(match nix::errno::Errno::from_raw(-fd) {
            nix::errno::Errno::EEXIST => Error::AlreadyAttached { path },
            nix::errno::Errno::EPERM => Error::NoPrivilege {
                what: "attach a policy".to_owned(),
            },
            nix::errno::Errno::ENODEV | nix::errno::Errno::EOPNOTSUPP => {
                Error::NoMemoryController {
                    path,
                    why: format!("the kernel refused: {source}"),
                    remedy: cgroup::ENABLE_MEMORY.to_owned(),
                }
            }
            _ => {
                return Err(source).context(|| format!("attaching the policy to {}", at.display()));
            }
        })
    }
}

/// Offset in bytes and type of a member.
fn member(of: &Struct<'_>, name: &str) -> Option<(usize, TypeId)> {
    let member = of.iter().find(|m| m.name == Some(OsStr::new(name)))?;
    match member.attr {
        MemberAttr::Normal { offset } => Some((offset as usize / 8, member.ty)),
        MemberAttr::BitField { .. } => None,
    }
}

/// Is there an enumerator of this name?  UAPI flags live in nameless enums, so
/// all of them are searched.
fn enum_has(btf: &Btf<'_>, name: &str) -> bool {
    let name = OsStr::new(name);
    btf.type_by_kind::<Enum<'_>>()
        .any(|e| e.iter().any(|m| m.name == Some(name)))
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

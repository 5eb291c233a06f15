// SPDX-License-Identifier: GPL-2.0-only
//! The policies attached to the system, found through the kernel's own lists:
//! link, its struct_ops map, the program in it, that program's maps.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::abi::{self, CgroupState, Tunables};
use crate::carrier::Carrier;
use crate::errors::{Context, Error, Result};
use crate::links::{self, LinkInfo};

/// One attached policy.
pub struct Policy {
    /// The link that attaches it.
    pub link: LinkInfo,
    /// Name of its struct_ops map, which is the policy's.
    pub name: String,
    /// Id of its mthp_choose.
    pub prog_id: u32,
    /// Its constants; `None` if they are not of this version.
    pub tunables: Option<Tunables>,
    /// Its state per cgroup; `None` if not of this version.
    pub states: Option<MapHandle>,
}

/// All policies of the system.
///
/// # Errors
/// [`Error::NoHook`], [`Error::NoPrivilege`], or a failed system call.
pub fn attached(carrier: &Carrier) -> Result<Vec<Policy>> {
    let offset = carrier.program_offset()?;
    let links = match links::struct_ops_links() {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            return Err(Error::NoPrivilege {
                what: "list BPF links".to_owned(),
            });
        }
        other => other.context(|| "listing BPF links".to_owned())?,
    };
    let mut policies = Vec::new();
    for link in links {
        // What goes away meanwhile is left out.
        let Ok(ops) = MapHandle::from_map_id(link.map_id) else {
            continue;
        };
        if value_type(&ops).ok() != Some(carrier.value_type_id()?) {
            continue;
        }
        let Ok(Some(value)) = ops.lookup(&0u32.to_ne_bytes(), MapFlags::ANY) else {
            continue;
        };
        // The kernel shows the program's id where the loader put its descriptor.
        let Some(&[a, b, c, d]) = value.get(offset..offset + 4) else {
            continue;
        };
        let mut policy = Policy {
            link,
            name: ops.name().to_string_lossy().into_owned(),
            prog_id: u32::from_ne_bytes([a, b, c, d]),
            tunables: None,
            states: None,
        };
        for id in map_ids(policy.prog_id).unwrap_or_default() {
            policy.take_map(id);
        }
        if policy.states.is_none() {
            policy.tunables = None;
        }
        policies.push(policy);
    }
    Ok(policies)
}

impl Policy {
    /// Keeps the map if it is one of ours, of this version.
    fn take_map(&mut self, id: u32) {
        let Ok(map) = MapHandle::from_map_id(id) else {
            return;
        };
        let name = map.name().to_string_lossy().into_owned();
        if name == abi::CGROUPS_MAP && map.value_size() as usize == size_of::<CgroupState>() {
            self.states = Some(map);
        } else if name == abi::TUNABLES_MAP {
            let value = map
                .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
                .ok()
                .flatten();
            self.tunables = value
                .and_then(|v| abi::from_bytes::<Tunables>(&v))
                .filter(|t| t.magic == abi::MAGIC && t.abi == abi::ABI);
        }
    }
}

/// Type id, in the kernel's BTF, of a struct_ops map's value.
fn value_type(map: &MapHandle) -> io::Result<u32> {
    let mut info = libbpf_sys::bpf_map_info::default();
    let mut len = size_of::<libbpf_sys::bpf_map_info>() as u32;
    // SAFETY: the buffer is a zeroed bpf_map_info of the length given.
    let ret = unsafe {
        libbpf_sys::bpf_obj_get_info_by_fd(
            map.as_fd().as_raw_fd(),
            (&raw mut info).cast(),
            &raw mut len,
        )
    };
    if ret != 0 {
        return Err(io::Error::from_raw_os_error(-ret));
    }
    Ok(info.btf_vmlinux_value_type_id)
}

/// Ids of the maps a program uses.
fn map_ids(prog_id: u32) -> io::Result<Vec<u32>> {
    // SAFETY: takes a number, returns a descriptor or an error.
    let fd = unsafe { libbpf_sys::bpf_prog_get_fd_by_id(prog_id) };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: just made by the kernel, owned by nobody else.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut ids = vec![0u32; 64];
    let mut info = libbpf_sys::bpf_prog_info {
        nr_map_ids: ids.len() as u32,
        map_ids: ids.as_mut_ptr() as u64,
        ..Default::default()
    };
    let mut len = size_of::<libbpf_sys::bpf_prog_info>() as u32;
    // SAFETY: `info` is zeroed but for the array of ids, which has the room it says.
    let ret = unsafe {
        libbpf_sys::bpf_obj_get_info_by_fd(fd.as_raw_fd(), (&raw mut info).cast(), &raw mut len)
    };
    if ret != 0 {
        return Err(io::Error::from_raw_os_error(-ret));
    }
    ids.truncate(info.nr_map_ids as usize);
    Ok(ids)
}

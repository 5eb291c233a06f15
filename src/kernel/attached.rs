// SPDX-License-Identifier: GPL-2.0-only
//! The policies attached to the system, found through the kernel's own lists: link, its
//! struct_ops map, the program in it, and the program beside it that explains.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions, ProgramInfo};
use libbpf_rs::{MapCore, MapFlags, MapHandle, Program};

use super::carrier::Carrier;
use super::links::{self, LinkInfo};
use super::load;
use crate::errors::{Context, Error, Result};
use crate::model::abi::{self, Explained, Tunables};

/// One attached policy.
pub struct Attached {
    /// The link that attaches it.
    pub link: LinkInfo,
    /// Its name: of the policy, or of the struct_ops map of another version.
    pub name: String,
    /// Id of its mthp_choose.
    pub prog_id: u32,
    /// Its constants; `None` if they are not of this version.
    pub tunables: Option<Tunables>,
    /// The program that explains its decisions; `None` if not of this version.
    explain: Option<OwnedFd>,
}

/// All policies of the system.
///
/// # Errors
/// [`Error::NoHook`], [`Error::NoPrivilege`], or a failed system call.
pub fn attached(carrier: &Carrier) -> Result<Vec<Attached>> {
    let offset = carrier.program_offset()?;
    let value_type = carrier.value_type_id()?;
    let links = match links::struct_ops_links() {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            return Err(Error::NoPrivilege {
                what: "list BPF links".to_owned(),
            });
        }
        other => other.context(|| "listing BPF links".to_owned())?,
    };
    if links.is_empty() {
        return Ok(Vec::new());
    }
    let wanted = ProgInfoQueryOptions::default().include_map_ids(true);
    let programs: Vec<ProgramInfo> = ProgInfoIter::with_query_opts(wanted).collect();
    let mut found = Vec::new();
    for link in links {
        // What goes away meanwhile is left out.
        let Ok(ops) = MapHandle::from_map_id(link.map_id) else {
            continue;
        };
        if ops.info().ok().map(|i| i.info.btf_vmlinux_value_type_id) != Some(value_type) {
            continue;
        }
        let Ok(Some(value)) = ops.lookup(&0u32.to_ne_bytes(), MapFlags::ANY) else {
            continue;
        };
        // The kernel shows the program's id where the loader put its descriptor.
        let Some(&[a, b, c, d]) = value.get(offset..offset + 4) else {
            continue;
        };
        let prog_id = u32::from_ne_bytes([a, b, c, d]);
        let mut one = Attached {
            link,
            name: ops.name().to_string_lossy().into_owned(),
            prog_id,
            tunables: None,
            explain: None,
        };
        one.find_rest(&programs);
        found.push(one);
    }
    Ok(found)
}

impl Attached {
    /// Constants and explaining program: they share the map of the constants.
    fn find_rest(&mut self, programs: &[ProgramInfo]) {
        let Some(choose) = programs.iter().find(|p| p.id == self.prog_id) else {
            return;
        };
        for &id in &choose.map_ids {
            let Some(tunables) = tunables_in(id) else {
                continue;
            };
            let explain = programs
                .iter()
                .find(|p| p.name == abi::EXPLAIN_PROG && p.map_ids.contains(&id));
            let Some(Ok(explain)) = explain.map(|p| Program::fd_from_id(p.id)) else {
                continue;
            };
            self.name = abi::text(&tunables.policy);
            self.tunables = Some(tunables);
            self.explain = Some(explain);
        }
    }

    /// What it decides for a cgroup now, and why, by its own program; `None` if it cannot be
    /// asked, or the cgroup is gone.
    ///
    /// # Errors
    /// Whatever the kernel answers; the policy decides none the less.
    pub fn explain(&self, cgroup_id: u64) -> Result<Option<Explained>> {
        let Some(program) = &self.explain else {
            return Ok(None);
        };
        let question = Explained {
            cgroup_id,
            ..Explained::default()
        };
        let mut context = abi::as_bytes(&question).to_vec();
        load::run_program(program.as_fd(), &mut context)
            .context(|| format!("asking the policy {} what it decides", self.name))?;
        Ok(abi::from_bytes(&context).filter(|answer: &Explained| answer.found != 0))
    }
}

/// The constants in a map, if it has some of this version.
fn tunables_in(map_id: u32) -> Option<Tunables> {
    let map = MapHandle::from_map_id(map_id).ok()?;
    if map.name() != abi::TUNABLES_MAP {
        return None;
    }
    let value = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok()??;
    abi::from_bytes::<Tunables>(&value).filter(|t| t.abi == abi::ABI)
}

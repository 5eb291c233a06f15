// SPDX-License-Identifier: GPL-2.0-only
//! The running kernel's release, and what this process may do on it.

use std::fs;

use super::clock;
use crate::errors::{Context, Result};

/// `uname -r`.
pub fn release() -> String {
    nix::sys::utsname::uname()
        .map(|u| u.release().to_string_lossy().into_owned())
        .unwrap_or_else(|_| "unknown".to_owned())
}

/// Milliseconds since boot, of which only the lower 32 bits are left: no other load of the last
/// hours began at the same.
pub fn moment() -> u32 {
    clock::now_ms() as u32
}

/// Capability numbers (linux/capability.h).
const CAP_SYS_ADMIN: u32 = 21;
const CAP_SYS_RESOURCE: u32 = 24;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// Where the kernel says what a process may do.
const STATUS: &str = "/proc/self/status";

/// May this process do what `run` does?  `of_a_module`: a module carries the hook.
///
/// # Errors
/// If that cannot be read.
pub fn privileged(of_a_module: bool) -> Result<bool> {
    let status = fs::read_to_string(STATUS).context(|| format!("reading {STATUS}"))?;
    Ok(effective_caps(&status).is_some_and(|caps| enough(caps, of_a_module)))
}

fn effective_caps(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// The bit of a capability in a set.
fn bit(cap: u32) -> u64 {
    1 << cap
}

fn enough(caps: u64, of_a_module: bool) -> bool {
    let has = |cap: u32| caps & bit(cap) != 0;
    // The two BPF capabilities were split off CAP_SYS_ADMIN, which still covers them. To look up
    // a module's types by their id (BPF_BTF_GET_NEXT_ID) takes that one. Without CAP_SYS_RESOURCE
    // a PSI trigger must have a 2 s window.
    let loads = !of_a_module && has(CAP_BPF) && has(CAP_PERFMON);
    has(CAP_SYS_RESOURCE) && (has(CAP_SYS_ADMIN) || loads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_from_the_status_file() {
        let all = effective_caps("Name:\tx\nCapEff:\t000001ffffffffff\n").unwrap();
        assert!(enough(all, false) && enough(all, true));
        assert!(!enough(all & !bit(CAP_SYS_RESOURCE), true));
        let of_the_unit = bit(CAP_BPF) | bit(CAP_PERFMON) | bit(CAP_SYS_RESOURCE);
        assert!(enough(of_the_unit, false));
        assert!(!enough(of_the_unit, true));
        assert!(!enough(bit(CAP_BPF) | bit(CAP_SYS_RESOURCE), false));
        assert_eq!(effective_caps("CapEff:\tnone\n"), None);
        assert_eq!(effective_caps(""), None);
    }
}

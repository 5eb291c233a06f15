// SPDX-License-Identifier: GPL-2.0-only
//! A command with the capabilities of the unit, and no others.

use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::libc;

const UNIT: &str = include_str!("../../packaging/systemd/mthp_ext.service");
/// What comes with the module.
const DROP_IN: &str = include_str!("../../packaging/systemd/mthp-hook.conf");

fn set_of(text: &'static str) -> Vec<&'static str> {
    let line = |line: &'static str| line.strip_prefix("CapabilityBoundingSet=");
    text.lines().find_map(line).unwrap().split(' ').collect()
}

/// Those of the unit.
pub fn of_the_unit() -> Vec<&'static str> {
    set_of(UNIT)
}

/// Those that the module adds.
pub fn of_the_drop_in() -> Vec<&'static str> {
    set_of(DROP_IN)
}

/// Numbers of linux/capability.h.
fn number(capability: &str) -> libc::c_ulong {
    match capability {
        "CAP_SYS_ADMIN" => 21,
        "CAP_SYS_RESOURCE" => 24,
        "CAP_PERFMON" => 38,
        "CAP_BPF" => 39,
        other => panic!("a capability that is new here: {other}"),
    }
}

/// Leaves a command that root starts only these.
pub fn only(command: &mut Command, capabilities: &[&str]) {
    let keep: Vec<libc::c_ulong> = capabilities.iter().map(|name| number(name)).collect();
    let drop = move || {
        // Up to the last that the kernel knows.
        for capability in (0..64).filter(|one| !keep.contains(one)) {
            // SAFETY: takes numbers; changes this process, which is about to become another.
            if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } != 0 {
                break;
            }
        }
        Ok(())
    };
    // SAFETY: between fork and exec, system calls alone.
    unsafe { command.pre_exec(drop) };
}

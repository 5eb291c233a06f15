// SPDX-License-Identifier: GPL-2.0-only
//! Swap space of the machine, which all cgroups share.

use std::fs;

use nix::sys::sysinfo::sysinfo;

/// Is what goes there at somebody else's cost?  Where less than a quarter is free it is for those who have none left.
/// On a device that waits it is for whoever reads from it: behind folios of 2 MiB their pages come at two thirds of
/// the rate (`swap/shared`).  Also where there is none, or nobody knows.
pub fn is_dear() -> bool {
    is_short() || fs::read_to_string("/proc/swaps").map_or(true, |swaps| waits(&swaps))
}

fn is_short() -> bool {
    sysinfo().map_or(true, |info| {
        less_than_a_quarter(info.swap_free(), info.swap_total())
    })
}

/// Is any of it something else than zram?  By the names in `/proc/swaps`.
fn waits(swaps: &str) -> bool {
    swaps
        .lines()
        .skip(1)
        .any(|line| !line.starts_with("/dev/zram"))
}

/// In any unit.
fn less_than_a_quarter(free: u64, total: u64) -> bool {
    total == 0 || free < total.div_ceil(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_is_enough() {
        assert!(!less_than_a_quarter(25, 100));
        assert!(less_than_a_quarter(24, 100));
        assert!(less_than_a_quarter(25, 101));
    }

    #[test]
    fn zram_alone_does_not_wait() {
        let zram = "/dev/zram0                              partition\t524284\t\t0\t\t100\n";
        let file = "/var/swap\\040file                       file\t\t524284\t\t0\t\t-2\n";
        let head = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";
        assert!(!waits(&format!("{head}{zram}{zram}")));
        assert!(waits(&format!("{head}{zram}{file}")));
        assert!(waits(&format!("{head}{file}")));
        assert!(waits(&format!("{head}/dev/dm-0 partition 1 0 -2\n")));
    }

    #[test]
    fn none_is_short() {
        assert!(less_than_a_quarter(0, 0));
    }
}

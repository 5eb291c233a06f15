// SPDX-License-Identifier: GPL-2.0-only
//! Swap space of the machine, which all cgroups share.

use nix::sys::sysinfo::sysinfo;

/// Is less than a quarter of it free?  Also where there is none, or nobody knows.
pub fn is_short() -> bool {
    sysinfo().map_or(true, |info| {
        less_than_a_quarter(info.swap_free(), info.swap_total())
    })
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
    fn none_is_short() {
        assert!(less_than_a_quarter(0, 0));
    }
}

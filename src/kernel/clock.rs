// SPDX-License-Identifier: GPL-2.0-only
//! CLOCK_MONOTONIC: the clock of the kernel's events and scans.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// What it shows; zero if it cannot be read.
pub fn monotonic() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from)
}

/// The same in milliseconds.
pub fn now_ms() -> u64 {
    u64::try_from(monotonic().as_millis()).unwrap_or_default()
}

// SPDX-License-Identifier: GPL-2.0-only
//! The wall clock as a seed.

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_settime};
use nix::unistd::getpid;

/// redis-benchmark seeds its keys with `time(NULL) ^ getpid()`. With the wall clock set to fit, all arms get the
/// same keys in the same order; everything that measures time here goes by the monotonic clock. For a process
/// about to exec the benchmark: two system calls, no allocation.
///
/// # Errors
/// This is not root.
pub fn seed_redis_benchmark(seed: i64) -> std::io::Result<()> {
    let time = TimeSpec::new(seed ^ i64::from(getpid().as_raw()), 0);
    Ok(clock_settime(ClockId::CLOCK_REALTIME, time)?)
}

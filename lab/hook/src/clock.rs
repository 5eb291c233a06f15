// SPDX-License-Identifier: GPL-2.0-only
//! The clock that counts instructions: in the lab's instruction-counted guests one instruction is one
//! nanosecond, and the TSC counts nanoseconds.

use std::arch::asm;
use std::arch::x86_64::_rdtsc;

use nix::sys::time::TimeValLike;
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

use lab_guest::failure::Failure;

/// Instructions executed since the guest was started, plus the time it slept.
#[inline(always)]
pub fn now() -> u64 {
    // SAFETY: every x86-64 processor has it, and nothing here forbids its use.
    unsafe { _rdtsc() }
}

/// Ticks of the clock for each of a known number of instructions: 1 where the clock is what it is taken for.
pub fn ticks_per_instruction() -> f64 {
    // Shorter than the time between two ticks of any kernel.
    const LOOPS: u64 = 100_000;
    const TRIES: usize = 20;
    // Interrupts can only add, so the least is the loop alone.
    let least = (0..TRIES)
        .map(|_| {
            let begin = now();
            // SAFETY: counts a register down to zero.
            unsafe {
                asm!("2:", "dec {n}", "jnz 2b", n = inout(reg) LOOPS => _, options(nomem, nostack));
            }
            now() - begin
        })
        .min();
    least.unwrap_or_default() as f64 / (2 * LOOPS) as f64
}

/// Processor time that a process has used so far, nanoseconds. `who`: what it is, for the error.
///
/// # Errors
/// The kernel does not tell.
pub fn used_by(pid: Pid, who: &str) -> Result<u64, Failure> {
    let what = || format!("read the processor time of {who}");
    let used = clock_getcpuclockid(pid)
        .and_then(clock_gettime)
        .map_err(|e| Failure::new(what(), e))?;
    u64::try_from(used.num_nanoseconds()).map_err(|_| Failure::other(what(), "it is negative"))
}

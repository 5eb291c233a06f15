// SPDX-License-Identifier: GPL-2.0-only
//! Timers of the loop of `run`: reading one that may have been set anew.

use nix::errno::Errno;

/// A timer that was reset between wake-up and read has nothing to report.
pub(super) fn not_again(error: Errno) -> nix::Result<()> {
    if error == Errno::EAGAIN {
        Ok(())
    } else {
        Err(error)
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! When to scan.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::commands::timer::not_again;
use crate::errors::{Context, Result};

/// Scans per window after a PSI event.  The trigger's window slides and the
/// scan's does not, so an event can come while the scan still sees only part of
/// the stall; the next scan should then not be a whole window away.
const ALERT_SCANS: u32 = 10;

/// The timer of the scan: once per window, more often for a while after a PSI event.
pub struct Pace {
    timer: TimerFd,
    window: Duration,
    /// Scans until the usual pace.
    left: u32,
}

impl Pace {
    /// Scans once per window.
    ///
    /// # Errors
    /// If there can be no timer.
    pub fn new(window: Duration) -> Result<Self> {
        let timer = TimerFd::new(
            ClockId::CLOCK_MONOTONIC,
            TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC,
        )
        .context(|| "making a timer".to_owned())?;
        let pace = Pace {
            timer,
            window,
            left: 0,
        };
        pace.every(window)?;
        Ok(pace)
    }

    fn every(&self, interval: Duration) -> Result<()> {
        self.timer
            .set(
                Expiration::Interval(TimeSpec::from(interval)),
                TimerSetTimeFlags::empty(),
            )
            .context(|| "setting the timer".to_owned())
    }

    /// There was a PSI event.
    ///
    /// # Errors
    /// If the timer cannot be set.
    pub fn alert(&mut self) -> Result<()> {
        if self.left == 0 {
            self.every(self.window / ALERT_SCANS)?;
        }
        self.left = ALERT_SCANS;
        Ok(())
    }

    /// The timer has woken the loop.
    ///
    /// # Errors
    /// If the timer cannot be read, or set.
    pub fn tick(&mut self) -> Result<()> {
        self.timer
            .wait()
            .or_else(not_again)
            .context(|| "reading the timer".to_owned())?;
        if self.left == 1 {
            self.every(self.window)?;
        }
        self.left = self.left.saturating_sub(1);
        Ok(())
    }
}

impl AsFd for Pace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

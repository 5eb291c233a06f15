// SPDX-License-Identifier: GPL-2.0-only
//! What the service manager hears: ready, stopping, and that the loop turns.  Without one
//! (no `NOTIFY_SOCKET`) nothing is sent.

use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use sd_notify::NotifyState;

use super::run::not_again;
use crate::errors::{Context, Error, Result};
use crate::kernel::handed::Named;

/// The service manager that started this process, if one did.
pub struct Manager {
    /// Runs out twice per period of the watchdog, where there is a watchdog.
    pulse: Option<TimerFd>,
    /// Names of what it holds.
    held: Vec<String>,
}

impl Manager {
    /// Reads from the environment what it wants.
    ///
    /// # Errors
    /// If there can be no timer.
    pub fn of_this_process() -> Result<Self> {
        let period = sd_notify::watchdog_enabled().filter(|period| !period.is_zero());
        Ok(Manager {
            pulse: period.map(pulse).transpose()?,
            held: Vec::new(),
        })
    }

    /// [`Error::Usage`] if there is none: nobody would hold the policy.
    ///
    /// # Errors
    /// That.
    pub fn required() -> Result<()> {
        match std::env::var_os("NOTIFY_SOCKET") {
            Some(_) => Ok(()),
            None => Err(Error::Usage(
                "--on-exit hand-over: no service manager has started this process ($NOTIFY_SOCKET), and one would \
                 have to hold the policy. Use the unit that `make install` brings, or --on-exit keep."
                    .to_owned(),
            )),
        }
    }

    /// Takes what it holds for this process.  Once: it has no other owner then.
    ///
    /// # Errors
    /// If the environment that says so is not as it must be.
    pub fn take(&mut self) -> Result<Vec<Named>> {
        let descriptors = sd_notify::listen_fds_with_names()
            .context(|| "reading what the service manager has handed over".to_owned())?;
        let named: Vec<Named> = descriptors
            // SAFETY: the manager opened them for this process, which uses them here only.
            .map(|(fd, name)| (name, unsafe { OwnedFd::from_raw_fd(fd) }))
            .collect();
        self.held = named.iter().map(|(name, _)| name.clone()).collect();
        Ok(named)
    }

    /// From now on it holds these and nothing else.
    ///
    /// # Errors
    /// If it cannot be reached.
    pub fn hold(&self, descriptors: &[Named]) -> Result<()> {
        let told = || -> std::io::Result<()> {
            for name in &self.held {
                sd_notify::notify(&[NotifyState::FdStoreRemove, NotifyState::FdName(name)])?;
            }
            for (name, fd) in descriptors {
                let state = [NotifyState::FdStore, NotifyState::FdName(name)];
                sd_notify::notify_with_fds(&state, &[fd.as_fd()])?;
            }
            Ok(())
        };
        told().context(|| "handing the policy to the service manager ($NOTIFY_SOCKET)".to_owned())
    }

    /// The policy is in force; `status` says which, and where.
    ///
    /// # Errors
    /// If it cannot be reached: it would wait, and then kill a service that works.
    pub fn ready(&self, status: &str) -> Result<()> {
        sd_notify::notify(&[NotifyState::Ready, NotifyState::Status(status)])
            .context(|| "reporting to the service manager ($NOTIFY_SOCKET)".to_owned())
    }

    /// Something else is in force now, as `status` says.
    pub fn changed(&self, status: &str) {
        // What it shows is for people; that it is out of date is not worth an end.
        let _ = sd_notify::notify(&[NotifyState::Status(status)]);
    }

    /// The policy is about to be detached.
    pub fn stopping(&self) {
        // It sees the process end as well.
        let _ = sd_notify::notify(&[NotifyState::Stopping, NotifyState::Status("detaching")]);
    }

    /// Readable when a sign of life is due.
    pub fn pulse(&self) -> Option<BorrowedFd<'_>> {
        self.pulse.as_ref().map(AsFd::as_fd)
    }

    /// The loop has turned since the pulse: all that was due is done.
    ///
    /// # Errors
    /// If the timer cannot be read.
    pub fn alive(&self) -> Result<()> {
        let Some(pulse) = &self.pulse else {
            return Ok(());
        };
        pulse
            .wait()
            .or_else(not_again)
            .context(|| "reading the timer of the watchdog".to_owned())?;
        // A manager that is being restarted misses one; one that misses all says so itself.
        let _ = sd_notify::notify(&[NotifyState::Watchdog]);
        Ok(())
    }
}

/// A timer of half the watchdog's period, as sd_watchdog_enabled(3) recommends.
fn pulse(period: Duration) -> Result<TimerFd> {
    let timer = TimerFd::new(
        ClockId::CLOCK_MONOTONIC,
        TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC,
    )
    .context(|| "making the timer of the watchdog".to_owned())?;
    timer
        .set(
            Expiration::Interval(TimeSpec::from(period / 2)),
            TimerSetTimeFlags::empty(),
        )
        .context(|| "setting the timer of the watchdog".to_owned())?;
    Ok(timer)
}

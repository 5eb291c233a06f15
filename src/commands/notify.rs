// SPDX-License-Identifier: GPL-2.0-only
//! What the service manager hears: ready, stopping, and that the loop turns.  Without one
//! (no `NOTIFY_SOCKET`) nothing is sent.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use sd_notify::NotifyState;

use super::timer::not_again;
use crate::errors::{Context, Error, Result};
use crate::kernel::handed::{self, Named};
use crate::model::ending::Ending;

/// Takes what the service manager holds for this process, once: it has no other owner then.
///
/// # Errors
/// If the environment that says so is not as it must be.
pub fn handed() -> Result<Vec<Named>> {
    // SAFETY: no other thread has been started.
    let descriptors = unsafe { sd_notify::listen_fds_with_names_and_unset_env() };
    let descriptors = descriptors
        .context(|| "taking what the service manager has handed over ($LISTEN_FDS)".to_owned())?;
    // SAFETY: the manager opened them for this process, and nothing was opened here before.
    let own = |(fd, name)| (name, unsafe { OwnedFd::from_raw_fd(fd) });
    Ok(descriptors.map(own).collect())
}

/// Does the service manager hold descriptors, by what it puts into the environment?
///
/// systemd says so from 254 on.  One before that is believed: it is known by what it sets from 248
/// on, without what it sets from 254 on.  So is one from 254 on without a store and without memory
/// accounting, which looks the same: what is said of a hand-over must be true of it, too.
pub fn holds(variable: impl Fn(&str) -> Option<OsString>) -> bool {
    match variable("FDSTORE") {
        Some(most) => most != "0",
        None => {
            variable("SYSTEMD_EXEC_PID").is_some() && variable("MEMORY_PRESSURE_WATCH").is_none()
        }
    }
}

/// Has a service manager started this process?
pub fn manager() -> Option<()> {
    std::env::var_os("NOTIFY_SOCKET").map(drop)
}

/// The service manager that started this process, if one did.
pub struct Manager {
    /// Runs out twice per period of the watchdog, where there is a watchdog.
    pulse: Option<TimerFd>,
    /// Names of what it holds.
    held: Vec<String>,
    /// So long may the loop take for a turn.
    pub patience: Duration,
}

/// So long where nobody says otherwise.
const PATIENCE: Duration = Duration::from_secs(30);

impl Manager {
    /// Reads from the environment what it wants.  `handed`: what it has held until now.
    ///
    /// # Errors
    /// If there can be no timer.
    pub fn of_this_process(handed: &[Named]) -> Result<Self> {
        let period = sd_notify::watchdog_enabled().filter(|period| !period.is_zero());
        Ok(Manager {
            pulse: period.map(pulse).transpose()?,
            held: handed.iter().map(|(name, _)| name.clone()).collect(),
            patience: period.unwrap_or(PATIENCE),
        })
    }

    /// [`Error::Usage`] if there is none: nobody would hold the policy.
    ///
    /// # Errors
    /// That.
    pub fn required(ending: &Ending) -> Result<()> {
        match manager() {
            Some(()) => Ok(()),
            None => Err(Error::Usage(format!(
                "on-exit is {ending}: no service manager has started this process ($NOTIFY_SOCKET), and one would \
                 have to hold the policy. Use the unit that `make install` brings, or --on-exit keep."
            ))),
        }
    }

    /// From now on it holds these and nothing else.  `goes_on`: the link is the one that it has
    /// held until now.
    ///
    /// # Errors
    /// If it cannot be reached.
    pub fn hold(&self, descriptors: &[Named], goes_on: bool) -> Result<()> {
        // Whoever is killed in between leaves the policy in force: it drops what it has already.
        let stays = |name: &str| {
            goes_on && name == handed::LINK && descriptors.iter().any(|(one, _)| one == name)
        };
        let told = || -> std::io::Result<()> {
            // The rest goes first.  Under one name it would keep the old map beside the new one,
            // and what is beyond its number it does not take.
            for name in self.held.iter().filter(|name| !stays(name)) {
                sd_notify::notify(&[NotifyState::FdStoreRemove, NotifyState::FdName(name)])?;
            }
            for (name, fd) in descriptors {
                let mut state = vec![NotifyState::FdStore, NotifyState::FdName(name)];
                // The link hangs up with its cgroup, and is to be dropped then.  A map cannot be
                // polled, which looks the same.
                if name != handed::LINK {
                    state.push(NotifyState::Custom("FDPOLL=0"));
                }
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

    /// The end has begun, as `status` says.
    pub fn stopping(&self, status: &str) {
        // It sees the process end as well.
        let _ = sd_notify::notify(&[NotifyState::Stopping, NotifyState::Status(status)]);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_nothing_is_known() {
        let holds = |set: &[(&str, &str)]| {
            holds(|name| {
                let found = set.iter().find(|(one, _)| *one == name);
                found.map(|(_, value)| OsString::from(value))
            })
        };
        let (pid, watch) = (("SYSTEMD_EXEC_PID", "7"), ("MEMORY_PRESSURE_WATCH", "/p"));
        // systemd 254 and later, with the setting and without.
        assert!(holds(&[("FDSTORE", "4"), pid, watch]));
        assert!(!holds(&[pid, watch]));
        // 252 says nothing.
        assert!(holds(&[pid]));
        // Another manager says so, or holds nothing.
        assert!(holds(&[("FDSTORE", "2")]));
        assert!(!holds(&[("FDSTORE", "0")]));
        assert!(!holds(&[]));
    }
}

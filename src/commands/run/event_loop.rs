// SPDX-License-Identifier: GPL-2.0-only
//! One loop over everything that can happen.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use libbpf_rs::{RingBuffer, RingBufferBuilder};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;

use super::pace::Pace;
use super::service::{Ended, Service};
use crate::commands::reload::Asked;
use crate::commands::xattrs::ROUND;
use crate::errors::{Context, Error, Result};

/// Without scans and a watchdog there is no timer: so often, in ms, it looks for what somebody may
/// have changed by hand.
const UNDISTURBED_MS: u16 = 10_000;

/// What woke the loop.
#[derive(Clone, Copy)]
#[repr(u64)]
enum Woke {
    Link,
    Signal,
    Timer,
    Pressure,
    Events,
    Pulse,
    Request,
}

impl Woke {
    const ALL: [Woke; 7] = [
        Woke::Link,
        Woke::Signal,
        Woke::Timer,
        Woke::Pressure,
        Woke::Events,
        Woke::Pulse,
        Woke::Request,
    ];

    fn from_data(data: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|s| *s as u64 == data)
    }
}

/// What is due at the end of a turn.
#[derive(Default)]
struct Due {
    scan: bool,
    pulse: bool,
}

/// Decisions that the programs report.
struct Decisions<'a> {
    /// An object of one's own may have none.
    ring: Option<RingBuffer<'a>>,
    service: &'a Service<'a>,
    /// Why one could not be reported.
    failed: &'a RefCell<Option<Error>>,
}

impl<'a> Decisions<'a> {
    fn of(service: &'a Service<'a>, failed: &'a RefCell<Option<Error>>) -> Result<Self> {
        let mut builder = RingBufferBuilder::new();
        let on_event = |bytes: &[u8]| match service.report(bytes) {
            Ok(()) => 0,
            Err(e) => {
                failed.replace(Some(e));
                -1
            }
        };
        let ring = match &service.daemon.loaded.events {
            Some(events) => {
                builder.add(events, on_event).map_err(|e| ring_error(&e))?;
                Some(builder.build().map_err(|e| ring_error(&e))?)
            }
            None => None,
        };
        Ok(Decisions {
            ring,
            service,
            failed,
        })
    }

    /// Reports all that there are, and looks at cgroups that were met.
    fn consume(&self) -> Result<()> {
        match self.ring.as_ref().map_or(Ok(()), |ring| ring.consume()) {
            Ok(()) => self.service.look_at_met(),
            Err(e) => Err(self.failed.take().unwrap_or_else(|| ring_error(&e))),
        }
    }
}

/// The loop.
struct EventLoop<'a> {
    service: &'a Service<'a>,
    epoll: Epoll,
    decisions: Decisions<'a>,
    /// `None`: there are no scans.
    pace: Option<Pace>,
    /// There is neither a scan nor a watchdog.
    alone: bool,
    /// When it has last looked for what somebody may have changed by hand.
    undisturbed: Instant,
    /// When all cgroups were last looked at.
    looked: Instant,
}

/// Serves until something ends it.
///
/// # Errors
/// Whatever ends the policy but a signal.
pub fn serve(service: &Service<'_>) -> Result<Ended> {
    service.counters.wakes();
    let failed = RefCell::new(None);
    let decisions = Decisions::of(service, &failed)?;
    EventLoop::new(service, decisions)?.run()
}

impl<'a> EventLoop<'a> {
    /// Watches all there is, scans once, and reports to the service manager.
    fn new(service: &'a Service<'a>, decisions: Decisions<'a>) -> Result<Self> {
        let daemon = service.daemon;
        let epoll =
            Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context(|| "making an epoll".to_owned())?;
        let watch = |fd: BorrowedFd<'_>, flags: EpollFlags, source: Woke| {
            epoll
                .add(fd, EpollEvent::new(flags, source as u64))
                .context(|| "watching for events".to_owned())
        };
        // A hang-up is always reported, so the link needs no flag of its own.
        watch(daemon.loaded.as_fd(), EpollFlags::empty(), Woke::Link)?;
        watch(daemon.signals.as_fd(), EpollFlags::EPOLLIN, Woke::Signal)?;
        if let Some(ring) = &decisions.ring {
            // SAFETY: `ring` owns the descriptor and outlives `epoll`'s use of it.
            let ring_fd = unsafe { BorrowedFd::borrow_raw(ring.epoll_fd()) };
            watch(ring_fd, EpollFlags::EPOLLIN, Woke::Events)?;
        }
        let mut pace = None;
        if let Some(trigger) = &daemon.trigger {
            let set = Pace::new(Duration::from_nanos(daemon.tunables.window_ns))?;
            watch(trigger.as_fd(), EpollFlags::EPOLLPRI, Woke::Pressure)?;
            watch(set.as_fd(), EpollFlags::EPOLLIN, Woke::Timer)?;
            pace = Some(set);
            service.scan()?;
        }
        if let Some(pulse) = daemon.manager.pulse() {
            watch(pulse, EpollFlags::EPOLLIN, Woke::Pulse)?;
        }
        if let Some(requests) = &daemon.requests {
            watch(requests.as_fd(), EpollFlags::EPOLLIN, Woke::Request)?;
        }
        decisions.consume()?;
        daemon.manager.ready(&service.status())?;
        Ok(EventLoop {
            service,
            epoll,
            decisions,
            alone: pace.is_none() && daemon.manager.pulse().is_none(),
            pace,
            undisturbed: Instant::now(),
            looked: Instant::now(),
        })
    }

    fn run(mut self) -> Result<Ended> {
        let patience = match self.alone {
            true => EpollTimeout::from(UNDISTURBED_MS),
            false => EpollTimeout::NONE,
        };
        let mut ready = [EpollEvent::empty(); Woke::ALL.len()];
        loop {
            self.service.counters.waits();
            let count = match self.epoll.wait(&mut ready, patience) {
                Err(nix::errno::Errno::EINTR) => continue,
                other => other.context(|| "waiting for events".to_owned())?,
            };
            self.service.counters.wakes();
            let due = self.undisturbed.elapsed() >= Duration::from_millis(UNDISTURBED_MS.into());
            let mut due = Due {
                scan: false,
                pulse: self.alone && due,
            };
            for event in &ready[..count] {
                if let Some(ended) = self.handle(event, &mut due)? {
                    return Ok(ended);
                }
            }
            self.finish_turn(&due)?;
        }
    }

    /// Handles one of the things that have woken the loop.  `Some`: it ends.
    fn handle(&mut self, event: &EpollEvent, due: &mut Due) -> Result<Option<Ended>> {
        let (service, daemon) = (self.service, self.service.daemon);
        let gone = event
            .events()
            .intersects(EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR);
        match (Woke::from_data(event.data()), &mut self.pace) {
            (Some(Woke::Link), _) => return service.link_gone().map(Some),
            (Some(Woke::Signal), _) => {
                self.decisions.consume()?;
                // Without configuration and service manager it is the end of a terminal.
                let reloads = daemon.assigner.is_some() || daemon.manager.pulse().is_some();
                match received(&daemon.signals) {
                    Signal::SIGHUP if reloads => drop(service.reload()?),
                    signal => return Ok(Some(Ended::By(signal))),
                }
            }
            (Some(Woke::Pressure), _) if gone => {
                if let Some(ended) = service.trigger_failed()? {
                    return Ok(Some(ended));
                }
                // Scans go on: they show programs that outlive this process that it lives.
                if let Some(trigger) = &daemon.trigger {
                    self.epoll
                        .delete(trigger.as_fd())
                        .context(|| "watching for events".to_owned())?;
                }
            }
            (Some(Woke::Pressure), Some(pace)) => {
                pace.alert()?;
                due.scan = true;
            }
            (Some(Woke::Timer), Some(pace)) => {
                pace.tick()?;
                due.scan = true;
            }
            (Some(Woke::Pulse), _) => due.pulse = true,
            (Some(Woke::Request), _) => {
                self.decisions.consume()?;
                if let Some(requests) = &daemon.requests {
                    requests.serve(|asked| match asked {
                        Asked::Reload => service.reload(),
                        Asked::Look(cgroup) => service.look_at(&cgroup),
                    })?;
                }
            }
            _ => {}
        }
        Ok(None)
    }

    /// Does what is due once all of them are handled.
    fn finish_turn(&mut self, due: &Due) -> Result<()> {
        let (service, daemon) = (self.service, self.service.daemon);
        if due.scan {
            service.scan()?;
        }
        if due.scan || due.pulse {
            self.undisturbed = Instant::now();
            service.look_at_settings()?;
            let round = Duration::from_nanos(daemon.tunables.window_ns) * ROUND;
            if self.looked.elapsed() >= round {
                self.looked = Instant::now();
                service.look_at_all()?;
            }
        }
        self.decisions.consume()?;
        // Last, so that a scan or an output that hangs shows.
        if due.pulse {
            daemon.manager.alive()?;
        }
        Ok(())
    }
}

fn ring_error(e: &libbpf_rs::Error) -> Error {
    Error::System {
        what: "reading the ring buffer of decisions".to_owned(),
        source: io::Error::other(e.to_string()),
    }
}

/// The signal that made the descriptor readable.
fn received(signals: &SignalFd) -> Signal {
    let info = signals.read_signal().ok().flatten();
    info.and_then(|info| i32::try_from(info.ssi_signo).ok())
        .and_then(|number| Signal::try_from(number).ok())
        .unwrap_or(Signal::SIGTERM)
}

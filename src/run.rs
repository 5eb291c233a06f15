// SPDX-License-Identifier: GPL-2.0-only
//! `mthp_ext run`: attach, then one loop over everything that can happen.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use libbpf_rs::RingBufferBuilder;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::abi;
use crate::carrier::Carrier;
use crate::cgroup::{self, Cgroup, Names};
use crate::cli::RunArgs;
use crate::errors::{Context, Error, Result};
use crate::events::{End, Line, Log};
use crate::loader::Attached;
use crate::orders::{Sizes, Thp};
use crate::psi::{self, Trigger};
use crate::support;

/// Scans per window after a PSI event.  The trigger's window slides and the
/// scan's does not, so an event can come while the scan still sees only part of
/// the stall; the next scan should then not be a whole window away.
const ALERT_SCANS: u32 = 10;

/// What woke the loop.
#[derive(Clone, Copy)]
#[repr(u64)]
enum Source {
    Link,
    Signal,
    Timer,
    Pressure,
    Events,
}

impl Source {
    const ALL: [Source; 5] = [
        Source::Link,
        Source::Signal,
        Source::Timer,
        Source::Pressure,
        Source::Events,
    ];

    fn from_data(data: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|s| *s as u64 == data)
    }
}

/// Why the loop ended without an error.
enum Ended {
    By(Signal),
    RootRemoved,
}

/// The command.
///
/// # Errors
/// Each with its own exit code; nothing is attached after any of them.
pub fn main(args: &RunArgs) -> Result<()> {
    args.check()?;
    let root = Cgroup::open(&args.root)?;
    let carrier = Carrier::probe()?;
    carrier.require_hook()?;
    let pressure_file = psi::file_of(&root.path, &root.mount);
    if args.policy.needs_psi() && !psi::available(&pressure_file) {
        return Err(Error::NoPsi {
            policy: args.policy.name().to_owned(),
        });
    }
    root.require_memory()?;
    if !support::privileged() {
        return Err(Error::NoPrivilege {
            what: "load and attach a policy".to_owned(),
        });
    }

    // Blocked before anything is attached: from here on a signal is an event.
    let signals = block_signals()?;
    let trigger = match args.policy.needs_psi() {
        true => Some(Trigger::arm(
            &pressure_file,
            args.threshold,
            args.window,
            args.policy.name(),
        )?),
        false => None,
    };
    let attached = Attached::new(args, &carrier, &root)?;
    drop(carrier);
    give_back();

    let log = RefCell::new(Log::new(io::stdout(), args.json));
    let print = |line: &Line| {
        log.borrow_mut()
            .print(line)
            .map_err(|source| Error::Output { source })
    };
    let names = Names::new(&root.mount);
    let at = names.of_path(&root.path);
    let thp = Thp::of_this_machine();
    print(&Line::Attached {
        t_ms: now_ms(),
        policy: args.policy.name(),
        root: at.clone(),
        cgroup_id: root.id,
        link_id: attached.link_id()?,
        load_ms: u64::try_from(attached.load_time.as_millis()).unwrap_or(u64::MAX),
        setting: thp.text(),
        thp: thp.enabled,
    })?;

    let end = serve(
        args,
        &root,
        &attached,
        trigger.as_ref(),
        &signals,
        &names,
        &print,
    );
    attached.detach();
    let (why, signal, result) = match end {
        Ok(Ended::By(signal)) => (End::Signal, Some(signal.as_str()), Ok(())),
        Ok(Ended::RootRemoved) => {
            let error = Error::RootRemoved { path: root.path };
            (End::RootRemoved, None, Err(error))
        }
        Err(error) => (End::Error, None, Err(error)),
    };
    let printed = print(&Line::Detached {
        t_ms: now_ms(),
        policy: args.policy.name(),
        root: at,
        why,
        signal,
        thp: Thp::of_this_machine().enabled,
    });
    // What ended the loop matters more than a line that could not be printed.
    result.and(printed)
}

/// Gives back what loading took: the kernel's symbols and types are read then, once.  The
/// daemon stays for months, and runs where memory is short.
fn give_back() {
    // SAFETY: plain C call without arguments that matter; it only frees what is free.
    #[cfg(target_env = "gnu")]
    unsafe {
        nix::libc::malloc_trim(0);
    }
}

fn block_signals() -> Result<SignalFd> {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        set.add(signal);
    }
    set.thread_block()
        .context(|| "blocking signals".to_owned())?;
    SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
        .context(|| "making a signalfd".to_owned())
}

/// CLOCK_MONOTONIC in milliseconds: the clock of the kernel's events.
fn now_ms() -> u64 {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)
        .ok()
        .and_then(|t| u64::try_from(t.tv_sec() * 1000 + t.tv_nsec() / 1_000_000).ok())
        .unwrap_or_default()
}

/// The loop.
fn serve(
    args: &RunArgs,
    root: &Cgroup,
    attached: &Attached,
    trigger: Option<&Trigger>,
    signals: &SignalFd,
    names: &Names,
    print: &dyn Fn(&Line) -> Result<()>,
) -> Result<Ended> {
    let sizes = Sizes::of_this_machine();
    let failed: RefCell<Option<Error>> = RefCell::new(None);
    let mut builder = RingBufferBuilder::new();
    let on_event = |bytes: &[u8]| {
        let Some(event) = abi::from_bytes::<abi::Event>(bytes) else {
            return 0;
        };
        let limit = (event.headroom_bytes != abi::NO_LIMIT)
            .then(|| names.path_of_id(event.cgroup_id))
            .flatten()
            .and_then(|dir| cgroup::nearest_limit(&dir, names, 0, &attached.tunables));
        let name = names.of_id(event.cgroup_id);
        let line = Line::decision(&event, name, limit, &attached.tunables, &sizes);
        match print(&line) {
            Ok(()) => 0,
            Err(e) => {
                failed.replace(Some(e));
                -1
            }
        }
    };
    let ring_error = |e: libbpf_rs::Error| Error::System {
        what: "reading the ring buffer of decisions".to_owned(),
        source: io::Error::other(e.to_string()),
    };
    builder
        .add(&attached.events, on_event)
        .map_err(ring_error)?;
    let ring = builder.build().map_err(ring_error)?;
    let consume = || match ring.consume() {
        Ok(()) => Ok(()),
        Err(e) => Err(failed.take().unwrap_or_else(|| ring_error(e))),
    };

    let timer = TimerFd::new(
        ClockId::CLOCK_MONOTONIC,
        TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC,
    )
    .context(|| "making a timer".to_owned())?;
    let every = |interval: std::time::Duration| {
        timer
            .set(
                Expiration::Interval(TimeSpec::from(interval)),
                TimerSetTimeFlags::empty(),
            )
            .context(|| "setting the timer".to_owned())
    };

    let epoll =
        Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context(|| "making an epoll".to_owned())?;
    let watch = |fd: BorrowedFd<'_>, flags: EpollFlags, source: Source| {
        epoll
            .add(fd, EpollEvent::new(flags, source as u64))
            .context(|| "watching for events".to_owned())
    };
    // A hang-up is always reported, so the link needs no flag of its own.
    watch(attached.as_fd(), EpollFlags::empty(), Source::Link)?;
    watch(signals.as_fd(), EpollFlags::EPOLLIN, Source::Signal)?;
    // SAFETY: `ring` owns the descriptor and outlives `epoll`'s use of it.
    let ring_fd = unsafe { BorrowedFd::borrow_raw(ring.epoll_fd()) };
    watch(ring_fd, EpollFlags::EPOLLIN, Source::Events)?;
    if let Some(trigger) = trigger {
        watch(trigger.as_fd(), EpollFlags::EPOLLPRI, Source::Pressure)?;
        watch(timer.as_fd(), EpollFlags::EPOLLIN, Source::Timer)?;
        every(args.window)?;
        attached.scan()?;
    }
    consume()?;

    let mut alert = 0u32;
    let mut ready = [EpollEvent::empty(); Source::ALL.len()];
    loop {
        let count = match epoll.wait(&mut ready, EpollTimeout::NONE) {
            Err(nix::errno::Errno::EINTR) => continue,
            other => other.context(|| "waiting for events".to_owned())?,
        };
        let mut scan = false;
        for event in &ready[..count] {
            let gone = event
                .events()
                .intersects(EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR);
            match Source::from_data(event.data()) {
                Some(Source::Link) => return Ok(Ended::RootRemoved),
                Some(Source::Signal) => {
                    consume()?;
                    return Ok(Ended::By(received(signals)));
                }
                // The trigger fails when its file goes away: with the root, or
                // because somebody switched PSI off there (cgroup.pressure).
                // The files go before the link is detached, so the link may
                // not know yet.
                Some(Source::Pressure) if gone => {
                    return if root.is_there() {
                        Err(Error::NoPsi {
                            policy: args.policy.name().to_owned(),
                        })
                    } else {
                        Ok(Ended::RootRemoved)
                    };
                }
                Some(Source::Pressure) => {
                    scan = true;
                    if alert == 0 {
                        every(args.window / ALERT_SCANS)?;
                    }
                    alert = ALERT_SCANS;
                }
                Some(Source::Timer) => {
                    timer
                        .wait()
                        .or_else(not_again)
                        .context(|| "reading the timer".to_owned())?;
                    scan = true;
                    if alert == 1 {
                        every(args.window)?;
                    }
                    alert = alert.saturating_sub(1);
                }
                Some(Source::Events) | None => {}
            }
        }
        if scan {
            attached.scan()?;
        }
        consume()?;
    }
}

/// The signal that made the descriptor readable.
fn received(signals: &SignalFd) -> Signal {
    let info = signals.read_signal().ok().flatten();
    info.and_then(|info| i32::try_from(info.ssi_signo).ok())
        .and_then(|number| Signal::try_from(number).ok())
        .unwrap_or(Signal::SIGTERM)
}

/// A timer that was reset between wake-up and read has nothing to report.
fn not_again(error: nix::errno::Errno) -> nix::Result<()> {
    if error == nix::errno::Errno::EAGAIN {
        Ok(())
    } else {
        Err(error)
    }
}

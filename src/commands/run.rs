// SPDX-License-Identifier: GPL-2.0-only
//! `mthp_ext run`: attach, then one loop over everything that can happen.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libbpf_rs::RingBufferBuilder;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use super::assign::{Assigner, Looked, Start};
use super::checked;
use super::cli::RunArgs;
use super::config;
use super::events::Recorder;
use super::exporter::{self, Address, Counters, Exporter};
use super::notify::{self, Manager};
use super::reload::{Asked, Requests, Verdict};
use super::xattrs;
use crate::errors::{Context, Error, Result};
use crate::kernel::assign::Assign;
use crate::kernel::carrier::Carrier;
use crate::kernel::cgroup::{Cgroup, Names};
use crate::kernel::clock::now_ms;
use crate::kernel::handed::Left;
use crate::kernel::load::{Assigns, Loaded};
use crate::kernel::named;
use crate::kernel::process;
use crate::kernel::programs::Programs;
use crate::kernel::psi::{self, Trigger};
use crate::kernel::takeover::Stay;
use crate::kernel::thp::{self, Change, Thp, Watched};
use crate::model::abi::{self, Load, Own, Tunables};
use crate::model::config::{Ending, Here, OnExit, Place, Problem, Spoils};
use crate::model::options::SCANS;
use crate::model::orders::Sizes;
use crate::model::policy::Policy;
use crate::model::profiles::{self, Profiles};
use crate::output::log::{End, Line, Log, Source};
use crate::output::openmetrics::InForce;
use crate::output::why::Level;

/// Scans per window after a PSI event.  The trigger's window slides and the
/// scan's does not, so an event can come while the scan still sees only part of
/// the stall; the next scan should then not be a whole window away.
const ALERT_SCANS: u32 = 10;

/// Windows after which all cgroups are asked again for their overrides: who writes one by himself
/// reports it to nobody.
pub(super) const ROUND: u32 = 60;

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

/// Without scans and a watchdog there is no timer: so often, in ms, it looks for what somebody may
/// have changed by hand.
const UNDISTURBED_MS: u16 = 10_000;

/// Why the loop ended without an error.
enum Ended {
    By(Signal),
    RootRemoved,
}

/// Are there scans?  Those of the policy's rules; of an object that obeys no policy, if it has any.
fn scans(programs: &Programs, policy: Option<&Policy>) -> Result<bool> {
    match policy {
        None => Ok(programs.scans()),
        Some(policy) if policy.rules.has(SCANS) => {
            programs.require_scan(&policy.name)?;
            Ok(true)
        }
        Some(_) => Ok(false),
    }
}

/// What of it is the user's own, as `status` shows it.
fn own(what: &Source) -> Own {
    let bit = |is: bool, bit: Own| if is { bit.0 } else { 0 };
    Own(bit(what.file.is_some(), Own::MTHP_OWN_FILE)
        | bit(what.object.is_some(), Own::MTHP_OWN_OBJECT))
}

/// The command.
///
/// # Errors
/// Each with its own exit code; nothing is attached after any of them.
pub fn main(args: &RunArgs) -> Result<()> {
    // Before anything is opened, which could be mistaken for it.
    let handed = notify::handed()?;
    let sizes = thp::sizes_of_this_machine();
    let programs = Programs::read(args.object.as_deref())?;
    let configuration = args.configuration()?;
    let plan = |file: &PathBuf| {
        let made = config::plan(file, &args.directory, &sizes);
        made.map_err(|problems| config::unusable(file, &problems))
    };
    let planned = configuration.as_ref().map(plan).transpose()?;
    let asked = match &planned {
        Some((plan, _)) => plan.ending(args.on_exit),
        None => Ending::chosen(args.on_exit, None),
    };
    let here = Here {
        dry_run: args.dry_run,
        held: notify::manager().map(|()| notify::holds(|name| std::env::var_os(name))),
    };
    let (policy, mut tunables) = match &planned {
        Some((plan, problems)) => {
            // `run` leaves out what has a mistake, and says so.
            if let (true, Some(file), Some(first)) = (args.check, &configuration, problems.first())
            {
                return Err(Error::Config {
                    file: file.clone(),
                    what: first.to_string(),
                });
            }
            (Some(plan.root.policy.clone()), plan.tunables)
        }
        None => args.resolve(&sizes, programs.tunable())?,
    };
    let mut scans = match configuration {
        Some(_) => true,
        None => scans(&programs, policy.as_ref())?,
    };
    let what = Source {
        policy: policy.as_ref().map(|policy| policy.name.clone()),
        file: policy.and_then(|policy| policy.file),
        object: args.object.clone(),
        dry_run: args.dry_run,
    };
    tunables.own = own(&what);
    if args.check {
        return checked::main(
            &what,
            &tunables,
            programs.tunable(),
            &asked.come_to(here),
            args.json,
        );
    }
    let title = what.policy.clone().unwrap_or_else(|| what.to_string());
    let root = named::root(&args.root)?;
    let names = Rc::new(Names::new(&root.mount));
    let carrier = Carrier::probe()?;
    carrier.require_hook()?;
    tunables.takes_back = carrier.takes_back().into();
    let pressure_file = psi::file_of(&root.path, &root.mount);
    let psi = psi::available(&pressure_file);
    let mut assigner = match configuration.zip(planned) {
        Some((file, planned)) => {
            let without = match &psi {
                Ok(true) => None,
                Ok(false) => Some("was off at the start".to_owned()),
                Err(e) => Some(format!("could not be read at the start ({e})")),
            };
            let unread_psi = psi.as_ref().err().map(|e| unread_psi(&pressure_file, e));
            let psi = without.is_none();
            let start = Start {
                takes_back: carrier.takes_back(),
                without_psi: without,
                unread_psi,
                on_exit: args.on_exit,
                here,
            };
            let found = (&args.directory, &sizes, &names);
            let assigner = Assigner::new(file, found, &root, planned, start)?;
            scans = psi || assigner.needs_scan().is_some();
            Some(assigner)
        }
        None => None,
    };
    if scans && !psi.map_err(|e| Error::reading(&pressure_file, e))? {
        return Err(Error::NoPsi {
            policy: title,
            why: psi::why_not(&pressure_file),
        });
    }
    root.require_memory()?;
    if !process::privileged()? {
        return Err(Error::NoPrivilege {
            what: "load and attach a policy".to_owned(),
        });
    }

    // Blocked before anything is attached: from here on a signal is an event.
    let signals = block_signals()?;
    let manager = Manager::of_this_process(&handed)?;
    let wanted = asked.on_exit == OnExit::HandOver;
    if wanted {
        Manager::required(&asked)?;
    }
    let ending = asked.come_to(here);
    let hand_over = ending.on_exit == OnExit::HandOver;
    let time = Duration::from_nanos;
    let trigger = match scans {
        true => Some(Trigger::arm(
            &pressure_file,
            time(tunables.threshold_ns),
            time(tunables.window_ns),
            &title,
        )?),
        false => None,
    };
    let mut exporter = Exporter::listen(&args.metrics);
    let (load, profiles) = match &assigner {
        Some(assigner) => (assigner.load(), assigner.profiles().clone()),
        None => {
            let profiles = Profiles::new(&tunables, process::moment());
            (profiles::load(&profiles, &tunables), profiles)
        }
    };
    let load = Load {
        dry_run: args.dry_run.into(),
        ..load
    };
    let keep = ending.on_exit == OnExit::Keep;
    // The policy is worth more than that it can be asked to reload; SIGHUP does it, too.  Before
    // cgroups are looked at: who writes an override from now on, asks.
    let requests = Requests::listen(&root);
    let left = Left::of(handed, &root, !args.dry_run)?;
    let goes_on = left.is_some();
    let stay = Stay {
        keep,
        hand_over,
        left,
    };
    let mut assign = assigner
        .as_mut()
        .map(|assigner| move |to: &Assign| assigner.assign_all(to));
    let assign = assign.as_mut().map(|assign| assign as Assigns<'_>);
    let loaded = Loaded::attach(programs, (&load, &profiles), assign, &carrier, &root, stay)?;
    let requests = requests
        .inspect_err(|e| eprintln!("mthp_ext: `mthp_ext reload` will not find this daemon: {e}"))
        .ok();
    let assigner = assigner.map(RefCell::new);
    if let Some(locator) = loaded.locator(&root.mount) {
        names.ask(locator);
    }
    let partial = what.policy.is_some().then(|| {
        let of_file = assigner.as_ref().map(RefCell::borrow);
        let all = of_file.as_ref().map_or(&profiles, |one| one.profiles());
        let all: Vec<&Tunables> = all.iter().collect();
        Line::partial(carrier.name(), carrier.by, &carrier.abilities, &all)
    });
    drop(carrier);
    give_back();

    let log = RefCell::new(Log::new(io::stdout(), args.json));
    let at = names.of_path(&root.path);
    // Not before: of two daemons that want this cgroup only one comes here.
    let recorder = RefCell::new(Recorder::open(&at, root.id));
    let print = |line: &Line| {
        recorder.borrow_mut().add(line);
        log.borrow_mut()
            .print(line)
            .map_err(|source| Error::Output { source })
    };
    // A reload changes it.
    let what = RefCell::new(what);
    // Whatever fails from here on, the policy is detached below.
    let mut begin = || -> Result<Ended> {
        let link_id = loaded.link_id()?;
        let holds = match hand_over {
            true => loaded.hand_over()?,
            false => Vec::new(),
        };
        manager.hold(&holds, goes_on)?;
        // Before it is said what they are: then no change is missed.
        let settings = RefCell::new(Watched::new(Path::new(thp::THP_SYSFS)));
        let thp = Thp::of_this_machine();
        print(&Line::Attached {
            t_ms: loaded.in_force_ms,
            what: what.borrow().clone(),
            root: at.clone(),
            cgroup_id: root.id,
            link_id,
            load_ms: u64::try_from(loaded.load_time.as_millis()).unwrap_or(u64::MAX),
            ending: ending.clone(),
            setting: thp.text(),
            thp: thp.enabled,
        })?;

        if let Some(Some(line)) = &partial {
            print(line)?;
        }
        if wanted && !hand_over {
            print(&unheld())?;
        }
        for (address, error) in &exporter.refused {
            print(&unserved(address, error))?;
        }
        let counters = Arc::new(Counters::default());
        exporter.serve(exporter::Source {
            root: root.path.clone(),
            mount: root.mount.clone(),
            sizes,
            explain: loaded.explain()?,
            counters: counters.clone(),
            patience: manager.patience,
        })?;
        if let Some(assigner) = &assigner {
            // Each cgroup has had its policy since before that of the root was in force.
            let mut assigner = assigner.borrow_mut();
            print(&configured(true, assigner.text()))?;
            for change in assigner.take_changes() {
                print(&overridden(change))?;
            }
        }

        let service = Service {
            counters: &counters,
            assigner: assigner.as_ref(),
            met: RefCell::default(),
            title: &title,
            settings,
            what: &what,
            attachment: format!(
                "attached to {at} (link {link_id}){}",
                match wanted && !hand_over {
                    true => "; it ends with the daemon, see the log",
                    false => "",
                }
            ),
            tunables: &tunables,
            profiles: &profiles,
            sizes: &sizes,
            root: &root,
            names: &names,
            loaded: &loaded,
            print: &print,
            manager: &manager,
            requests: requests.as_ref(),
        };
        service.put_into_force(true);
        service.serve(trigger.as_ref(), &signals)
    };
    let end = begin();
    let what = what.into_inner();
    let stays = (keep || hand_over) && matches!(end, Ok(Ended::By(_)));
    manager.stopping(match (stays, hand_over) {
        (false, _) => "detaching",
        (true, false) => "ending; the policy stays attached",
        (true, true) => "ending; a restart goes on with the policy, a stop ends it",
    });
    if let (true, Ok(Ended::By(signal))) = (stays, &end) {
        return print(&Line::Kept {
            t_ms: now_ms(),
            what,
            root: at,
            signal: signal.as_str(),
            handed: hand_over,
        });
    }
    let unpinned = loaded.detach();
    let (why, signal, result) = match end {
        Ok(Ended::By(signal)) => (End::Signal, Some(signal.as_str()), Ok(())),
        Ok(Ended::RootRemoved) => {
            let error = Error::RootRemoved { path: root.path };
            (End::RootRemoved, None, Err(error))
        }
        Err(error) => {
            let why = match error {
                Error::Detached { .. } => End::LinkDetached,
                Error::NoPsi { .. } => End::PsiOff,
                _ => End::Error,
            };
            (why, None, Err(error))
        }
    };
    let printed = print(&Line::Detached {
        t_ms: now_ms(),
        what,
        root: at,
        why,
        signal,
        thp: Thp::of_this_machine().enabled,
    });
    // What ended the loop matters more than a line that could not be printed.
    result.and(unpinned).and(printed)
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

/// A line about the configuration.
fn configured(in_force: bool, text: String) -> Line {
    Line::Configured {
        t_ms: now_ms(),
        in_force,
        text,
    }
}

/// A line about a cgroup's override of its own.
fn overridden(change: xattrs::Change) -> Line {
    Line::Override {
        t_ms: now_ms(),
        cgroup: change.cgroup,
        in_force: change.in_force,
        text: change.text,
    }
}

/// A configuration may do without.
fn unread_psi(file: &Path, error: &io::Error) -> Problem {
    Problem {
        place: Place {
            file: file.to_owned(),
            line: None,
        },
        what: format!("{error}: policies that need PSI are refused until the next start"),
        spoils: Spoils::Policy,
    }
}

/// A restart is to have no gap, and will have one.
fn unheld() -> Line {
    Line::Unheld {
        t_ms: now_ms(),
        text:
            "the policy ends with this daemon, and a restart has a gap: the service manager holds \
               nothing for it, whatever --on-exit says ($FDSTORE is not set); set \
               FileDescriptorStoreMax=2 in the unit, or use --on-exit keep"
                .to_owned(),
    }
}

/// The policy matters more than its metrics: nobody waits for an address.  But a typing error
/// must show.
fn unserved(address: &Address, error: &io::Error) -> Line {
    let (address, seconds) = (address.to_string(), exporter::AGAIN.as_secs());
    Line::Unserved {
        t_ms: now_ms(),
        text: format!(
            "no metrics at {address}: {error}; the policy is in force without them, and the \
             address is tried again every {seconds}s (another process may have it, or a sandbox \
             forbid it)"
        ),
        address,
    }
}

/// The policy at work, and what it takes to report it.
struct Service<'a> {
    /// The configuration, if there is one.
    assigner: Option<&'a RefCell<Assigner>>,
    /// Cgroups that the programs met, until they were looked at.
    met: RefCell<Vec<u64>>,
    /// Its name at the start.
    title: &'a str,
    /// What the host allows.
    settings: RefCell<Watched>,
    /// What is in force.
    what: &'a RefCell<Source>,
    /// Where, in words.
    attachment: String,
    tunables: &'a Tunables,
    profiles: &'a Profiles,
    sizes: &'a Sizes,
    root: &'a Cgroup,
    names: &'a Names,
    loaded: &'a Loaded,
    counters: &'a Counters,
    print: &'a dyn Fn(&Line) -> Result<()>,
    manager: &'a Manager,
    /// Who asks for a new configuration.
    requests: Option<&'a Requests>,
}

/// The timer of the scan: once per window, more often for a while after a PSI event.
struct Pace {
    timer: TimerFd,
    window: Duration,
    /// Scans until the usual pace.
    left: u32,
}

impl Pace {
    fn new(window: Duration) -> Result<Self> {
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
    fn alert(&mut self) -> Result<()> {
        if self.left == 0 {
            self.every(self.window / ALERT_SCANS)?;
        }
        self.left = ALERT_SCANS;
        Ok(())
    }

    /// The timer has woken the loop.
    fn tick(&mut self) -> Result<()> {
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

fn ring_error(e: &libbpf_rs::Error) -> Error {
    Error::System {
        what: "reading the ring buffer of decisions".to_owned(),
        source: io::Error::other(e.to_string()),
    }
}

impl Service<'_> {
    /// Scans, and counts it.
    fn scan(&self) -> Result<()> {
        let begun = Instant::now();
        self.loaded.scan()?;
        self.counters.scan(begun.elapsed());
        Ok(())
    }

    /// The administrator's settings bind; what was changed is said.
    fn look_at_settings(&self) -> Result<()> {
        let changes = self.settings.borrow_mut().changes();
        if changes.is_empty() {
            return Ok(());
        }
        let off = Thp::of_this_machine().off;
        for Change { file, from, to } in changes {
            (self.print)(&Line::Setting {
                t_ms: now_ms(),
                file,
                from,
                to,
                off,
            })?;
        }
        self.manager.changed(&self.status());
        Ok(())
    }

    /// Prints a decision that the kernel reported.
    fn report(&self, bytes: &[u8]) -> Result<()> {
        if let Ok(id) = <[u8; 8]>::try_from(bytes) {
            self.met.borrow_mut().push(u64::from_ne_bytes(id));
        }
        let Some(event) = abi::from_bytes::<abi::Event>(bytes) else {
            return Ok(());
        };
        self.counters.decision(event.suppressed);
        let values = match self.assigner {
            Some(assigner) => *assigner.borrow().profiles().of(event.now.profile),
            None => *self.profiles.of(event.now.profile),
        };
        let name = self.names.of_id(event.cgroup_id);
        let level = Level::of(&event.now, self.names);
        (self.print)(&Line::decision(&event, name, level, &values, self.sizes))
    }

    /// Those that were met may have an override.
    fn look_at_met(&self) -> Result<()> {
        let met = self.met.take();
        match self.assigner {
            Some(assigner) if !met.is_empty() => {
                assigner.borrow_mut().met(&self.loaded.assign, &met)?;
                self.report_overrides(assigner)
            }
            _ => Ok(()),
        }
    }

    /// Any cgroup may have another one of its own.
    fn look_at_all(&self) -> Result<()> {
        match self.assigner {
            Some(assigner) => {
                assigner.borrow_mut().assign_all(&self.loaded.assign)?;
                self.report_overrides(assigner)
            }
            None => Ok(()),
        }
    }

    fn report_overrides(&self, assigner: &RefCell<Assigner>) -> Result<()> {
        let changes = assigner.borrow_mut().take_changes();
        changes
            .into_iter()
            .try_for_each(|change| (self.print)(&overridden(change)))
    }

    /// A cgroup has another override of its own.
    fn look_at(&self, cgroup: &Path) -> Result<Verdict> {
        let verdict = |in_force: bool, text: String, code: u8| Verdict {
            in_force,
            text,
            code,
        };
        let (root, usage) = (
            self.names.of_path(&self.root.path),
            Error::Usage(String::new()),
        );
        let Some(assigner) = self.assigner else {
            let text = format!(
                "the daemon of {root} has no configuration, which overrides need: start it with \
                 one, which may be empty (run --config)"
            );
            return Ok(verdict(false, text, usage.code()));
        };
        let asked = assigner.borrow_mut().asked(&self.loaded.assign, cgroup)?;
        self.report_overrides(assigner)?;
        Ok(match asked {
            Some(Looked { text, code }) => verdict(code == 0, text, code),
            None => verdict(false, format!("it is not below {root}"), 0),
        })
    }

    /// Notes what is in force now, for metrics, service manager and the last line; `read`: it is
    /// what was read last.
    fn put_into_force(&self, read: bool) {
        let mut what = self.what.borrow_mut();
        let mut in_force = InForce {
            policy: self.title.to_owned(),
            dry_run: what.dry_run,
            config_refused: !read,
            config_left_out: 0,
        };
        if let Some(assigner) = self.assigner {
            let assigner = assigner.borrow();
            let policy = assigner.policy();
            what.policy = Some(policy.name.clone());
            what.file.clone_from(&policy.file);
            in_force.policy.clone_from(&policy.name);
            in_force.config_left_out = assigner.problems.len();
        }
        self.counters.put_into_force(in_force);
    }

    /// What the service manager shows.
    fn status(&self) -> String {
        let refused = match self.counters.in_force().config_refused {
            true => "; the configuration that was read last is refused, see the log",
            false => "",
        };
        let off = match Thp::of_this_machine().off {
            true => "; no size is on, so there is nothing to narrow",
            false => "",
        };
        format!("{} {}{refused}{off}", self.what.borrow(), self.attachment)
    }

    /// Takes a new configuration over; one that cannot be used leaves the former one in force.
    fn reload(&self) -> Result<Verdict> {
        let refused = |text: String, code: u8| Verdict {
            in_force: false,
            text,
            code,
        };
        let verdict = match self.assigner {
            Some(assigner) => match assigner.borrow_mut().reload(&self.loaded.assign) {
                Ok(text) => Verdict {
                    in_force: true,
                    text,
                    code: 0,
                },
                Err(e) => refused(
                    format!("the new configuration is not in force, the former one stays: {e}"),
                    e.code(),
                ),
            },
            None => refused(
                "no configuration was read at the start: restart to use one".to_owned(),
                Error::Usage(String::new()).code(),
            ),
        };
        self.put_into_force(verdict.in_force);
        self.manager.changed(&self.status());
        (self.print)(&configured(verdict.in_force, verdict.text.clone()))?;
        if let Some(assigner) = self.assigner {
            self.report_overrides(assigner)?;
        }
        Ok(verdict)
    }

    /// The loop.
    fn serve(&self, trigger: Option<&Trigger>, signals: &SignalFd) -> Result<Ended> {
        self.counters.wakes();
        let failed: RefCell<Option<Error>> = RefCell::new(None);
        let mut builder = RingBufferBuilder::new();
        let on_event = |bytes: &[u8]| match self.report(bytes) {
            Ok(()) => 0,
            Err(e) => {
                failed.replace(Some(e));
                -1
            }
        };
        let ring = match &self.loaded.events {
            Some(events) => {
                builder.add(events, on_event).map_err(|e| ring_error(&e))?;
                Some(builder.build().map_err(|e| ring_error(&e))?)
            }
            None => None,
        };
        let consume = || match ring.as_ref().map_or(Ok(()), |ring| ring.consume()) {
            Ok(()) => self.look_at_met(),
            Err(e) => Err(failed.take().unwrap_or_else(|| ring_error(&e))),
        };

        let epoll =
            Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context(|| "making an epoll".to_owned())?;
        let watch = |fd: BorrowedFd<'_>, flags: EpollFlags, source: Woke| {
            epoll
                .add(fd, EpollEvent::new(flags, source as u64))
                .context(|| "watching for events".to_owned())
        };
        // A hang-up is always reported, so the link needs no flag of its own.
        watch(self.loaded.as_fd(), EpollFlags::empty(), Woke::Link)?;
        watch(signals.as_fd(), EpollFlags::EPOLLIN, Woke::Signal)?;
        if let Some(ring) = &ring {
            // SAFETY: `ring` owns the descriptor and outlives `epoll`'s use of it.
            let ring_fd = unsafe { BorrowedFd::borrow_raw(ring.epoll_fd()) };
            watch(ring_fd, EpollFlags::EPOLLIN, Woke::Events)?;
        }
        let mut pace = None;
        if let Some(trigger) = trigger {
            let set = Pace::new(Duration::from_nanos(self.tunables.window_ns))?;
            watch(trigger.as_fd(), EpollFlags::EPOLLPRI, Woke::Pressure)?;
            watch(set.timer.as_fd(), EpollFlags::EPOLLIN, Woke::Timer)?;
            pace = Some(set);
            self.scan()?;
        }
        if let Some(pulse) = self.manager.pulse() {
            watch(pulse, EpollFlags::EPOLLIN, Woke::Pulse)?;
        }
        if let Some(requests) = self.requests {
            watch(requests.as_fd(), EpollFlags::EPOLLIN, Woke::Request)?;
        }
        consume()?;
        self.manager.ready(&self.status())?;

        let alone = pace.is_none() && self.manager.pulse().is_none();
        let patience = match alone {
            true => EpollTimeout::from(UNDISTURBED_MS),
            false => EpollTimeout::NONE,
        };
        let mut undisturbed = Instant::now();
        let round = Duration::from_nanos(self.tunables.window_ns) * ROUND;
        let mut looked = Instant::now();
        let mut ready = [EpollEvent::empty(); Woke::ALL.len()];
        loop {
            self.counters.waits();
            let count = match epoll.wait(&mut ready, patience) {
                Err(nix::errno::Errno::EINTR) => continue,
                other => other.context(|| "waiting for events".to_owned())?,
            };
            self.counters.wakes();
            let due = undisturbed.elapsed() >= Duration::from_millis(UNDISTURBED_MS.into());
            let (mut scan, mut pulse) = (false, alone && due);
            for event in &ready[..count] {
                let gone = event
                    .events()
                    .intersects(EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR);
                match (Woke::from_data(event.data()), &mut pace) {
                    (Some(Woke::Link), _) => return self.link_gone(),
                    (Some(Woke::Signal), _) => {
                        consume()?;
                        // Without configuration and service manager it is the end of a terminal.
                        let reloads = self.assigner.is_some() || self.manager.pulse().is_some();
                        match received(signals) {
                            Signal::SIGHUP if reloads => drop(self.reload()?),
                            signal => return Ok(Ended::By(signal)),
                        }
                    }
                    (Some(Woke::Pressure), _) if gone => {
                        if let Some(ended) = self.trigger_failed()? {
                            return Ok(ended);
                        }
                        // Scans go on: they show programs that outlive this process that it lives.
                        if let Some(trigger) = trigger {
                            epoll
                                .delete(trigger.as_fd())
                                .context(|| "watching for events".to_owned())?;
                        }
                    }
                    (Some(Woke::Pressure), Some(pace)) => {
                        pace.alert()?;
                        scan = true;
                    }
                    (Some(Woke::Timer), Some(pace)) => {
                        pace.tick()?;
                        scan = true;
                    }
                    (Some(Woke::Pulse), _) => pulse = true,
                    (Some(Woke::Request), _) => {
                        consume()?;
                        if let Some(requests) = self.requests {
                            requests.serve(|asked| match asked {
                                Asked::Reload => self.reload(),
                                Asked::Look(cgroup) => self.look_at(&cgroup),
                            })?;
                        }
                    }
                    _ => {}
                }
            }
            if scan {
                self.scan()?;
            }
            if scan || pulse {
                undisturbed = Instant::now();
                self.look_at_settings()?;
                if looked.elapsed() >= round {
                    looked = Instant::now();
                    self.look_at_all()?;
                }
            }
            consume()?;
            // Last, so that a scan or an output that hangs shows.
            if pulse {
                self.manager.alive()?;
            }
        }
    }

    /// The link hangs up when its cgroup is removed, after the files of that are gone, and when
    /// somebody who has a descriptor of it detaches it.
    fn link_gone(&self) -> Result<Ended> {
        if !self.root.is_there() {
            return Ok(Ended::RootRemoved);
        }
        Err(Error::Detached {
            path: self.root.path.clone(),
        })
    }

    /// The trigger fails when its file goes away: with the root, or because somebody switched
    /// PSI off there (cgroup.pressure).  The files go before the link is detached, so the link
    /// may not know yet.  `None`: nothing in force needs it.
    fn trigger_failed(&self) -> Result<Option<Ended>> {
        if !self.root.is_there() {
            return Ok(Some(Ended::RootRemoved));
        }
        let needs = |policy| Error::NoPsi {
            policy,
            why: String::new(),
        };
        let Some(assigner) = self.assigner else {
            return Err(needs(self.counters.in_force().policy));
        };
        if let Some(policy) = assigner.borrow().needs_scan() {
            return Err(needs(policy));
        }
        assigner.borrow_mut().without_psi();
        (self.print)(&Line::Setting {
            t_ms: now_ms(),
            file: self.root.path.join("cgroup.pressure").display().to_string(),
            from: "1".to_owned(),
            to: "0".to_owned(),
            off: false,
        })?;
        Ok(None)
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
pub(super) fn not_again(error: nix::errno::Errno) -> nix::Result<()> {
    if error == nix::errno::Errno::EAGAIN {
        Ok(())
    } else {
        Err(error)
    }
}

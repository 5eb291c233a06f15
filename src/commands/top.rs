// SPDX-License-Identifier: GPL-2.0-only
//! `mthp_ext top`: the cgroups on a terminal, asked of the kernel again and again.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use super::args::TopArgs;
use crate::errors::{Context, Error, Result};
use crate::kernel::attached;
use crate::kernel::carrier::Carrier;
use crate::kernel::cgroup::{self, Cgroup, Names};
use crate::kernel::thp;
use crate::output::cgroups;
use crate::output::policies::PolicyLine;
use crate::output::top::Screen;

/// A signal waits for no longer than this.
const AWAKE: Duration = Duration::from_millis(200);

/// What is asked each time.
struct Kernel {
    carrier: Carrier,
    root: Cgroup,
}

impl Kernel {
    fn probe() -> Result<Self> {
        let root = Cgroup::open(Path::new(cgroup::DEFAULT_MOUNT))?;
        let carrier = Carrier::probe()?;
        Ok(Kernel { carrier, root })
    }

    fn show_on(&self, screen: &mut Screen, elapsed: Duration) -> Result<()> {
        let policies = attached::attached(&self.carrier)?;
        let names = Names::new(&self.root.mount);
        let bound = cgroups::bound(&policies, &names, &thp::sizes_of_this_machine());
        let mut said: Vec<String> = policies
            .iter()
            .map(|policy| PolicyLine::of(policy, &names))
            .map(|policy| format!("{} on {}", policy.title(), policy.root))
            .collect();
        if said.is_empty() {
            said.push("no policy is attached".to_owned());
        }
        if !bound.gaps.is_empty() {
            // In front: the line may be longer than the screen is wide.
            said.insert(0, format!("not listed: {}", bound.gaps.join(", ")));
        }
        screen.update(said.join(", "), bound.lines, elapsed);
        Ok(())
    }
}

/// The command.
///
/// # Errors
/// [`Error::Usage`] without a terminal; else as `status`.
pub fn main(args: &TopArgs) -> Result<()> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Error::Usage(
            "top needs a terminal for input and output: without one use \
             `mthp_ext status --watch`, with --json for programs."
                .to_owned(),
        ));
    }
    let kernel = Kernel::probe()?;
    let mut screen = Screen::new(thp::sizes_of_this_machine());
    kernel.show_on(&mut screen, Duration::ZERO)?;

    // As events: none of them leaves the terminal as it is now.
    let mut set = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        set.add(signal);
    }
    set.thread_block()
        .context(|| "blocking signals".to_owned())?;
    let signals = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
        .context(|| "making a signalfd".to_owned())?;
    let _until_the_end = Restore;
    // Restores the terminal in a panic, too.
    let mut terminal = ratatui::try_init().context(|| "preparing the terminal".to_owned())?;
    let lost = |source| Error::Output { source };
    let mut asked = Instant::now();
    let mut changed = true;
    loop {
        // Nothing is sent while nothing changes: the terminal may be far away.
        if std::mem::take(&mut changed) {
            terminal.draw(|frame| screen.draw(frame)).map_err(lost)?;
        }
        let rest = args.interval.saturating_sub(asked.elapsed());
        if event::poll(rest.min(AWAKE)).map_err(lost)? {
            changed = true;
            match event::read().map_err(lost)? {
                Event::Key(key) if key.kind != KeyEventKind::Release && screen.key(key) => {
                    return Ok(());
                }
                _ => {}
            }
        }
        if matches!(signals.read_signal(), Ok(Some(_))) {
            return Ok(());
        }
        if asked.elapsed() >= args.interval {
            let elapsed = asked.elapsed();
            asked = Instant::now();
            kernel.show_on(&mut screen, elapsed)?;
            changed = true;
        }
    }
}

/// Gives the terminal back, however `main` ends.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        // It may be gone.
        let _ = ratatui::try_restore();
    }
}

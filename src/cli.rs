// SPDX-License-Identifier: GPL-2.0-only
//! The command line.  Doc comments here are the help texts.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::Serialize;

use crate::abi;
use crate::caps::Caps;
use crate::errors::{EXIT_CODES, Error, Result};
use crate::orders::Sizes;
use crate::presets::Preset;
use crate::units;

/// Page-size policy per cgroup: makes transparent huge pages safe under memory
/// pressure
///
/// A BPF policy in the kernel narrows the page sizes that a cgroup may get, per
/// reason and moment by moment. Stopping mthp_ext, whichever way, restores the
/// system's own setting within one page fault.
#[derive(Debug, Parser)]
#[command(version, after_help = EXIT_CODES, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Attach a policy and keep it fed until stopped (SIGINT, SIGTERM)
    #[command(after_help = EXIT_CODES)]
    Run(RunArgs),
    /// Show what is attached where, and what each cgroup may use now and why
    #[command(after_help = EXIT_CODES)]
    Status(OutputArgs),
    /// List the presets of `run` and the options they set
    #[command(after_help = EXIT_CODES)]
    Presets(OutputArgs),
    /// Show what this kernel can do; changes nothing
    #[command(after_help = EXIT_CODES)]
    Support(OutputArgs),
}

/// The policies; one BPF object each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// 4 KiB while the cgroup stalls on memory; 4 KiB on fault while it is small
    Reactive,
    /// An order only while its folio fits K times into what a limit or the host has left
    Headroom,
    /// What all rules allow: headroom, pressure, and no large folios where they would be empty
    Adaptive,
    /// A cap by order, for each reason its own
    Fixed,
}

impl Policy {
    /// The name used everywhere.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Reactive => "reactive",
            Policy::Headroom => "headroom",
            Policy::Adaptive => "adaptive",
            Policy::Fixed => "fixed",
        }
    }

    /// Below which a cgroup is small, unless told otherwise: the proposal's figure, or what
    /// the suite's sweep found.
    fn min_memory(self) -> u64 {
        match self {
            Policy::Adaptive => 8 << 20,
            Policy::Reactive | Policy::Headroom | Policy::Fixed => 16 << 20,
        }
    }

    /// Calm windows that a verdict of pressure may come to need: the proposal's rule knows
    /// no back-off.
    fn max_hold(self) -> u32 {
        match self {
            Policy::Reactive => 1,
            Policy::Adaptive | Policy::Headroom | Policy::Fixed => 64,
        }
    }

    /// Does it judge by PSI, and so need the scan?
    pub fn needs_psi(self) -> bool {
        matches!(self, Policy::Reactive | Policy::Adaptive)
    }
}

/// Which stall counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pressure {
    /// Time in which at least one task stalled on memory
    Some,
    /// Time in which every non-idle task did
    Full,
}

/// Options of the commands that only show something.
#[derive(Debug, Args)]
pub struct OutputArgs {
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// Options of `run`.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// Cgroup to attach to; binds all its descendants, also those made later
    #[arg(long, value_name = "PATH", default_value = "/sys/fs/cgroup")]
    pub root: PathBuf,

    /// Which policy
    #[arg(long, value_enum, default_value = "adaptive")]
    pub policy: Policy,

    /// Options for particular users, see `mthp_ext presets`; options of your own come first
    #[arg(long, value_enum, value_name = "NAME")]
    pub preset: Option<Preset>,

    /// Stall within one window that counts as high pressure; above 0, at most the window
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = units::duration)]
    pub threshold: Duration,

    /// Window of the pressure rule and interval of the scan; 100ms to 10s
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::duration)]
    pub window: Duration,

    /// Calm windows in a row that the verdict of high pressure may come to need before it falls:
    /// one at first, twice as many each time pressure is soon back; 1 to 1024 [default: 64;
    /// reactive: 1]
    #[arg(long, value_name = "WINDOWS", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub max_hold: Option<u32>,

    /// Anon+shmem below which a cgroup is small; 0 turns the rule off [default: 16M; adaptive: 8M]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub min_memory: Option<u64>,

    /// Memory that large folios may waste in a process before it counts as sparse; 0 turns the
    /// rule off
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = units::size)]
    pub sparse_waste: u64,

    /// Largest order ever allowed (folios of 2^N base pages), 0 to 62; for all reasons, or for
    /// those named: fault=4,swapin=0,khugepaged=9,collapse=9
    #[arg(long, value_name = "N|REASON=N,...", value_parser = Caps::parse)]
    pub max_order: Option<Caps>,

    /// Kind of stall to judge by
    #[arg(long, value_enum, default_value = "full")]
    pub pressure: Pressure,

    /// K: a folio must fit K times before the nearest limit; 1 to 1048576
    #[arg(long, value_name = "K", default_value_t = 1024,
          value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub headroom_factor: u64,

    /// The same for what the host as a whole has left; 1 to 1048576
    #[arg(long, value_name = "K", default_value_t = 1024,
          value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub host_factor: u64,

    /// Percentage of a limit, and of the host, that large folios may fill whatever the headroom; 0 to 100
    #[arg(long, value_name = "PERCENT", default_value_t = 50,
          value_parser = clap::value_parser!(u32).range(0..=100))]
    pub limit_share: u32,

    /// Count all page cache as used, even what was read once and reclaim would drop first
    #[arg(long)]
    pub count_cache: bool,

    /// Let the rules bind memory that asked for huge pages (MADV_HUGEPAGE) as well
    #[arg(long)]
    pub narrow_advised: bool,

    /// Let the rules bind huge pages that a program makes by force (MADV_COLLAPSE) as well
    #[arg(long)]
    pub narrow_collapse: bool,

    /// Percentage of the threshold that a window must stay below to be calm; 1 to 100 [default: 50;
    /// without --max-hold beyond 1: 100]
    #[arg(long, value_name = "PERCENT", hide_short_help = true, help_heading = CONSTANTS,
          value_parser = clap::value_parser!(u32).range(1..=100))]
    pub calm_share: Option<u32>,

    /// Largest order that pressure leaves, 0 to 62; 0: only base pages
    #[arg(long, value_name = "N", default_value_t = 0, hide_short_help = true,
          help_heading = CONSTANTS, value_parser = clap::value_parser!(u32).range(0..=62))]
    pub pressure_order: u32,

    /// Percentage of the memory it spans that a process must fill not to count as sparse; 0 to 100
    #[arg(long, value_name = "PERCENT", default_value_t = 50, hide_short_help = true,
          help_heading = CONSTANTS, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub sparse_share: u32,

    /// Requests of a cgroup from one look at the process, the host, page cache and the limits above
    /// to the next; a power of two, 1 to 4096
    #[arg(long, value_name = "REQUESTS", default_value_t = 16, hide_short_help = true,
          help_heading = CONSTANTS, value_parser = look_every)]
    pub look_every: u32,

    /// Print JSON lines instead of text
    #[arg(long)]
    pub json: bool,
}

/// Bounds of `--window`.  Longer ones the kernel's PSI triggers refuse; with
/// shorter ones the scan, once per window, would itself become a load.
const WINDOW: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(10);

/// Heads the options that are there to be measured; nobody should have to set them.
const CONSTANTS: &str = "Constants of the rules, for measuring them";

/// Reads `--look-every`: the programs mask instead of dividing.
fn look_every(text: &str) -> std::result::Result<u32, String> {
    match text.parse::<u32>() {
        Ok(every) if every.is_power_of_two() && every <= 4096 => Ok(every),
        _ => Err("it must be a power of two from 1 to 4096".to_owned()),
    }
}

impl RunArgs {
    /// Checks the values against each other.
    ///
    /// # Errors
    /// [`Error::Usage`] with the range that was left.
    pub fn check(&self) -> Result<()> {
        if !WINDOW.contains(&self.window) {
            return Err(Error::Usage(format!(
                "--window {:?} is out of range: it must be from 100ms to 10s, \
                 the range in which a PSI trigger and a scan make sense.",
                self.window
            )));
        }
        // PSI triggers count microseconds: less than one would be rounded to 0.
        if self.threshold < Duration::from_micros(1) || self.threshold > self.window {
            return Err(Error::Usage(format!(
                "--threshold {:?} is out of range: it must be from 1us to the window ({:?}), \
                 as no more than one window of stall fits into a window.",
                self.threshold, self.window
            )));
        }
        self.check_caps()
    }

    /// A cap that would bind nothing is a mistake, and nobody would notice it.
    fn check_caps(&self) -> Result<()> {
        let caps = self.max_order.unwrap_or_default();
        if caps.collapse_named && !self.narrow_collapse {
            return Err(Error::Usage(
                "--max-order names collapse, which no rule binds: add --narrow-collapse to bind it."
                    .to_owned(),
            ));
        }
        if self.policy == Policy::Fixed && self.max_order.is_none() {
            return Err(Error::Usage(
                "--policy fixed has no cap and would narrow nothing: add --max-order.".to_owned(),
            ));
        }
        Ok(())
    }

    /// The tunables for the BPF side; `own` are those the policy brings along, and
    /// `khugepaged_fills` tells that it makes huge pages of mostly empty regions.
    pub fn tunables(
        &self,
        own: &abi::Tunables,
        sizes: &Sizes,
        khugepaged_fills: bool,
    ) -> abi::Tunables {
        let nanos = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        let max_hold = self.max_hold.unwrap_or(self.policy.max_hold());
        let threshold_ns = nanos(self.threshold);
        // Hysteresis belongs to the back-off: without one a window is calm or high.
        let usual = if max_hold > 1 { 50 } else { 100 };
        let calm_share = self.calm_share.unwrap_or(usual);
        abi::Tunables {
            page_shift: sizes.page_shift,
            largest_pages: 1 << sizes.largest(),
            max_order: self.max_order.unwrap_or_default().tunable(),
            narrow_advised: self.narrow_advised.into(),
            narrow_collapse: self.narrow_collapse.into(),
            count_cache: self.count_cache.into(),
            psi_full: (self.pressure == Pressure::Full).into(),
            max_hold,
            threshold_ns,
            calm_ns: threshold_ns * u64::from(calm_share) / 100,
            window_ns: nanos(self.window),
            min_memory: self.min_memory.unwrap_or(self.policy.min_memory()),
            headroom_factor: self.headroom_factor,
            host_factor: self.host_factor,
            limit_share: units::share(self.limit_share),
            bind_khugepaged: (self.policy == Policy::Adaptive && khugepaged_fills).into(),
            sparse_bytes: self.sparse_waste,
            sparse_share: units::share(self.sparse_share),
            look_mask: self.look_every - 1,
            pressure_order: self.pressure_order,
            ..*own
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn run(args: &[&str]) -> std::result::Result<RunArgs, u8> {
        let argv = ["mthp_ext", "run"].iter().chain(args);
        let cli = Cli::try_parse_from(argv).map_err(|_| 2)?;
        let Command::Run(run) = cli.command else {
            panic!("asked for run")
        };
        run.check().map_err(|e| e.code())?;
        Ok(run)
    }

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn defaults_are_as_documented() {
        let args = run(&[]).unwrap();
        let sizes = Sizes {
            orders: 0x3fc,
            page_shift: 12,
        };
        let t = args.tunables(&abi::Tunables::default(), &sizes, true);
        let own = abi::Tunables::default();
        assert_eq!(args.tunables(&own, &sizes, false).bind_khugepaged, 0);
        assert_eq!(args.root, PathBuf::from("/sys/fs/cgroup"));
        assert_eq!(args.policy, Policy::Adaptive);
        assert_eq!((t.threshold_ns, t.window_ns), (100_000_000, 1_000_000_000));
        assert_eq!(
            t.min_memory,
            8 << 20,
            "the proposal has 16 MiB, and so has its rule"
        );
        let reactive = run(&["--policy", "reactive"]).unwrap();
        let theirs = reactive.tunables(&own, &sizes, true);
        assert_eq!(theirs.min_memory, 16 << 20);
        assert_eq!((t.max_hold, t.calm_ns), (64, 50_000_000));
        assert_eq!((theirs.max_hold, theirs.calm_ns), (1, 100_000_000));
        assert_eq!((t.bind_khugepaged, theirs.bind_khugepaged), (1, 0));
        assert_eq!((t.sparse_bytes, t.limit_share), (64 << 20, 512));
        assert_eq!((t.sparse_share, t.look_mask), (512, 15));
        let early = run(&["--calm-share", "25", "--look-every", "1"]).unwrap();
        let early = early.tunables(&own, &sizes, true);
        assert_eq!((early.calm_ns, early.look_mask), (25_000_000, 0));
        assert_eq!((t.psi_full, t.narrow_advised, t.narrow_collapse), (1, 0, 0));
        assert_eq!(t.count_cache, 0);
        let counted = run(&["--count-cache"]).unwrap();
        assert_eq!(counted.tunables(&own, &sizes, true).count_cache, 1);
        assert_eq!(
            (t.max_order, t.headroom_factor),
            ([abi::NO_MAX_ORDER; 4], 1024)
        );
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for bad in [
            ["--threshold", "0ms"],
            ["--threshold", "2s"],
            ["--threshold", "10x"],
            ["--threshold", "999ns"],
            ["--window", "99ms"],
            ["--window", "11s"],
            ["--window", "1"],
            ["--min-memory", "1+1"],
            ["--min-memory", "16777216T"],
            ["--max-hold", "0"],
            ["--max-hold", "1025"],
            ["--max-order", "63"],
            ["--max-order", "-1"],
            ["--max-order", "fault=63"],
            ["--max-order", "collapse=4"],
            ["--policy", "fixed"],
            ["--headroom-factor", "0"],
            ["--limit-share", "101"],
            ["--sparse-waste", "1+1"],
            ["--sparse-share", "101"],
            ["--pressure-order", "63"],
            ["--calm-share", "0"],
            ["--calm-share", "101"],
            ["--look-every", "0"],
            ["--look-every", "24"],
            ["--look-every", "8192"],
            ["--headroom-factor", "1048577"],
            ["--pressure", "most"],
            ["--policy", "none"],
        ] {
            assert_eq!(run(&bad).unwrap_err(), 2, "{bad:?}");
        }
    }

    #[test]
    fn a_cap_binds_forced_collapse_only_on_request() {
        let collapse = ["--max-order", "collapse=4", "--narrow-collapse"];
        assert_eq!(run(&collapse).unwrap().max_order.unwrap().tunable()[3], 4);
        assert!(run(&["--policy", "fixed", "--max-order", "4"]).is_ok());
    }

    #[test]
    fn values_at_the_edge_are_taken() {
        for good in [
            ["--threshold", "1s"],
            ["--threshold", "1us"],
            ["--window", "100ms"],
            ["--window", "10s"],
            ["--min-memory", "0"],
            ["--max-hold", "1"],
            ["--max-hold", "1024"],
            ["--max-order", "0"],
            ["--max-order", "62"],
            ["--max-order", "fault=4,swapin=0"],
            ["--headroom-factor", "1048576"],
            ["--limit-share", "0"],
            ["--limit-share", "100"],
            ["--sparse-waste", "0"],
            ["--sparse-share", "0"],
            ["--sparse-share", "100"],
            ["--calm-share", "1"],
            ["--calm-share", "100"],
            ["--look-every", "4096"],
        ] {
            assert!(run(&good).is_ok(), "{good:?}");
        }
    }
}

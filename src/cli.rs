// SPDX-License-Identifier: GPL-2.0-only
//! The command line.  Doc comments here are the help texts.

use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::Serialize;

use crate::abi;
use crate::caps::Caps;
use crate::decide;
use crate::errors::{EXIT_CODES, Error, Result};
use crate::orders::Sizes;
use crate::presets::Preset;
use crate::units;

/// Page-size policy per cgroup: makes transparent huge pages safe under memory
/// pressure
///
/// A BPF policy in the kernel decides at each request which page sizes a cgroup may
/// get. It needs a kernel with the mthp_ext series. When mthp_ext ends, in whatever
/// way, the next page fault follows transparent_hugepage/enabled again.
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
    /// Attach a policy to a cgroup and print each changed decision, until Ctrl-C or SIGTERM
    ///
    /// Each line begins with the seconds since boot, as in dmesg.
    #[command(after_help = EXIT_CODES)]
    Run(RunArgs),
    /// Show where policies are attached, and what each cgroup may use now and why
    #[command(after_help = EXIT_CODES)]
    Status(OutputArgs),
    /// List the presets of `run` and the options they set
    #[command(after_help = EXIT_CODES)]
    Presets(OutputArgs),
    /// Check this system for what mthp_ext needs; changes nothing
    #[command(after_help = EXIT_CODES)]
    Support(OutputArgs),
}

/// The policies; one BPF object each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// Base pages while the cgroup stalls on memory, and on fault while it is small
    Reactive,
    /// An order only while its folio fits K times into what a limit or the host has left; needs no PSI
    Headroom,
    /// All rules: stall, headroom, and no large folios where they would stay mostly empty
    Adaptive,
    /// Only the caps of --max-order
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

    /// Its defaults.
    fn defaults(self) -> &'static abi::Tunables {
        match self {
            Policy::Reactive => decide::defaults_of_reactive(),
            Policy::Adaptive | Policy::Headroom | Policy::Fixed => decide::defaults(),
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

impl Default for Pressure {
    fn default() -> Self {
        match decide::defaults().psi_full {
            0 => Pressure::Some,
            _ => Pressure::Full,
        }
    }
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
    /// Cgroup to attach to; the policy covers it and all its descendants, also later ones
    #[arg(long, value_name = "PATH", default_value = "/sys/fs/cgroup")]
    pub root: PathBuf,

    /// Rules that decide
    #[arg(long, value_enum, default_value = "adaptive")]
    pub policy: Policy,

    /// A named set of options (see `mthp_ext presets`); options you give override it
    #[arg(long, value_enum, value_name = "NAME")]
    pub preset: Option<Preset>,

    /// Stall within one window that is high pressure; 1us to the window. Lower: reacts to shorter
    /// stalls, with fewer large folios
    #[arg(long, value_name = "TIME", default_value = THRESHOLD.as_str(), value_parser = units::duration)]
    pub threshold: Duration,

    /// Time over which stall is measured, and interval of the scan; 100ms to 10s. Longer: decisions
    /// change later and less often
    #[arg(long, value_name = "TIME", default_value = WINDOW.as_str(), value_parser = units::duration)]
    pub window: Duration,

    /// Most calm windows in a row before high pressure ends; 1 to 1024. It takes one at first, and
    /// twice as many each time pressure soon returns. Higher: fewer changes, large folios return
    /// later [default: 64; reactive: 1]
    #[arg(long, value_name = "WINDOWS", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub max_hold: Option<u32>,

    /// Anon+shmem below which a cgroup is small and its faults get base pages; 0 turns the rule off.
    /// Higher: less waste in small services, large folios come later [default: 8M; reactive: 16M]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub min_memory: Option<u64>,

    /// Memory that large folios may waste in one process before its faults get base pages; 0 turns
    /// the rule off. Lower: less waste, fewer large folios
    #[arg(long, value_name = "SIZE", default_value = SPARSE_WASTE.as_str(), value_parser = units::size)]
    pub sparse_waste: u64,

    /// Largest order allowed (folios of 2^N base pages); 0 to 62, for all reasons or by reason:
    /// fault=4,swapin=0,khugepaged=9,collapse=9,reclaim=9. Lower: smaller folios [default: no cap]
    #[arg(long, value_name = "N|REASON=N,...", value_parser = Caps::parse)]
    pub max_order: Option<Caps>,

    /// Stall that counts: time in which all tasks stall (full), or any task (some). With some,
    /// pressure is high sooner
    #[arg(long, value_enum, default_value_t)]
    pub pressure: Pressure,

    /// K of limits: one folio may take 1/K of what the nearest limit has left; 1 to 1048576.
    /// Higher: folios get smaller earlier before a limit
    #[arg(long, value_name = "K", default_value_t = decide::defaults().headroom_factor,
          value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub headroom_factor: u64,

    /// K of the host: one folio may take 1/K of what the host has left; 1 to 1048576. Higher: folios
    /// get smaller earlier on a full host
    #[arg(long, value_name = "K", default_value_t = decide::defaults().host_factor,
          value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub host_factor: u64,

    /// Percentage of a limit, and of the host, that may be in use before K counts; 0 to 100. Higher:
    /// large folios up to closer to a limit
    #[arg(long, value_name = "PERCENT", default_value_t = units::percent(decide::defaults().limit_share),
          value_parser = clap::value_parser!(u32).range(0..=100))]
    pub limit_share: u32,

    /// Count page cache that reclaim would drop first as used. Folios then get smaller earlier where
    /// files are read
    #[arg(long)]
    pub count_cache: bool,

    /// Apply all rules to MADV_HUGEPAGE memory. Without this option it gets what the cgroup can hold
    #[arg(long)]
    pub narrow_advised: bool,

    /// Apply the rules to MADV_COLLAPSE as well. Without this option it is left alone
    #[arg(long)]
    pub narrow_collapse: bool,

    /// Percentage of the threshold below which a window is calm; 1 to 100. Lower: high pressure ends
    /// later [default: 50; without back-off (--max-hold 1): 100]
    #[arg(long, value_name = "PERCENT", hide_short_help = true, help_heading = CONSTANTS,
          value_parser = clap::value_parser!(u32).range(1..=100))]
    pub calm_share: Option<u32>,

    /// Largest order allowed under high pressure; 0 to 62. With 0 only base pages are left
    #[arg(long, value_name = "N", default_value_t = decide::defaults().pressure_order,
          hide_short_help = true, help_heading = CONSTANTS,
          value_parser = clap::value_parser!(u32).range(0..=62))]
    pub pressure_order: u32,

    /// Percentage of the memory it spans below which a process is sparse; 0 to 100. Higher: more
    /// processes are
    #[arg(long, value_name = "PERCENT", default_value_t = units::percent(decide::defaults().sparse_share),
          hide_short_help = true, help_heading = CONSTANTS,
          value_parser = clap::value_parser!(u32).range(0..=100))]
    pub sparse_share: u32,

    /// Requests of a cgroup between two samples of its process, limits, page cache and host; a power
    /// of two from 1 to 4096. Lower: decisions follow changes sooner, each request costs more
    #[arg(long, value_name = "REQUESTS", default_value_t = decide::defaults().sample_mask + 1,
          hide_short_help = true, help_heading = CONSTANTS, value_parser = sample_every)]
    pub sample_every: u32,

    /// Print JSON lines instead of text
    #[arg(long)]
    pub json: bool,
}

// Defaults as the options are written.
static THRESHOLD: LazyLock<String> =
    LazyLock::new(|| units::show_duration(decide::defaults().threshold_ns));
static WINDOW: LazyLock<String> =
    LazyLock::new(|| units::show_duration(decide::defaults().window_ns));
static SPARSE_WASTE: LazyLock<String> =
    LazyLock::new(|| units::show_size(decide::defaults().sparse_bytes));

/// Bounds of `--window`.  Longer ones the kernel's PSI triggers refuse; with
/// shorter ones the scan, once per window, would itself become a load.
const WINDOWS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(10);

/// Heads the options that exist to be measured; nobody should have to set them.
const CONSTANTS: &str = "Constants of the rules, for measurements";

/// Reads `--sample-every`: the programs mask instead of dividing.
fn sample_every(text: &str) -> std::result::Result<u32, String> {
    match text.parse::<u32>() {
        Ok(every) if every.is_power_of_two() && every <= 4096 => Ok(every),
        _ => Err("it must be a power of two from 1 to 4096".to_owned()),
    }
}

/// Default of `--calm-share`.  Hysteresis belongs to the back-off: without one a window is
/// calm or high, as in the policy `reactive`.
fn usual_calm_share(max_hold: u32) -> u64 {
    let t = match max_hold {
        1 => decide::defaults_of_reactive(),
        _ => decide::defaults(),
    };
    t.calm_ns * 100 / t.threshold_ns
}

impl RunArgs {
    /// Checks the values against each other.
    ///
    /// # Errors
    /// [`Error::Usage`] with the range that was left.
    pub fn check(&self) -> Result<()> {
        if !WINDOWS.contains(&self.window) {
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
    /// `khugepaged_fills` means that khugepaged makes huge pages of mostly empty regions.
    pub fn tunables(
        &self,
        own: &abi::Tunables,
        sizes: &Sizes,
        khugepaged_fills: bool,
    ) -> abi::Tunables {
        let nanos = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        let defaults = self.policy.defaults();
        let max_hold = self.max_hold.unwrap_or(defaults.max_hold);
        let threshold_ns = nanos(self.threshold);
        let calm_share = self
            .calm_share
            .map_or(usual_calm_share(max_hold), u64::from);
        abi::Tunables {
            page_shift: sizes.page_shift,
            largest_pages: 1 << sizes.largest(),
            max_order: self
                .max_order
                .map_or(defaults.max_order, |caps| caps.tunable()),
            narrow_advised: self.narrow_advised.into(),
            narrow_collapse: self.narrow_collapse.into(),
            count_cache: self.count_cache.into(),
            psi_full: (self.pressure == Pressure::Full).into(),
            max_hold,
            threshold_ns,
            calm_ns: threshold_ns * calm_share / 100,
            window_ns: nanos(self.window),
            min_memory: self.min_memory.unwrap_or(defaults.min_memory),
            headroom_factor: self.headroom_factor,
            host_factor: self.host_factor,
            limit_share: units::share(self.limit_share),
            bind_khugepaged: (self.policy == Policy::Adaptive && khugepaged_fills).into(),
            sparse_bytes: self.sparse_waste,
            sparse_share: units::share(self.sparse_share),
            sample_mask: self.sample_every - 1,
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
        let reactive = run(&["--policy", "reactive"]).unwrap();
        let theirs = reactive.tunables(&own, &sizes, true);
        assert_eq!((t.min_memory, theirs.min_memory), (8 << 20, 16 << 20));
        assert_eq!((t.max_hold, t.calm_ns), (64, 50_000_000));
        assert_eq!((theirs.max_hold, theirs.calm_ns), (1, 100_000_000));
        assert_eq!((t.bind_khugepaged, theirs.bind_khugepaged), (1, 0));
        assert_eq!((t.sparse_bytes, t.limit_share), (64 << 20, 512));
        assert_eq!((t.sparse_share, t.sample_mask), (512, 15));
        let early = run(&["--calm-share", "25", "--sample-every", "1"]).unwrap();
        let early = early.tunables(&own, &sizes, true);
        assert_eq!((early.calm_ns, early.sample_mask), (25_000_000, 0));
        assert_eq!((t.psi_full, t.narrow_advised, t.narrow_collapse), (1, 0, 0));
        assert_eq!(t.count_cache, 0);
        let counted = run(&["--count-cache"]).unwrap();
        assert_eq!(counted.tunables(&own, &sizes, true).count_cache, 1);
        assert_eq!(
            (t.max_order, t.headroom_factor),
            (abi::ByReason::each(abi::NO_MAX_ORDER), 1024)
        );
    }

    /// The header's defaults reach the kernel as they stand there, but for what the machine says.
    #[test]
    fn defaults_are_those_of_the_header() {
        let sizes = Sizes {
            orders: 0x3fc,
            page_shift: 12,
        };
        for policy in Policy::value_variants() {
            let mut words = vec!["--policy", policy.name()];
            if *policy == Policy::Fixed {
                // It insists on a cap.
                words.extend(["--max-order", "62"]);
            }
            let mut t = run(&words)
                .unwrap()
                .tunables(&abi::Tunables::default(), &sizes, false);
            assert_eq!((t.page_shift, t.largest_pages), (12, 512));
            (t.page_shift, t.largest_pages) = (0, 0);
            if *policy == Policy::Fixed {
                assert_eq!(t.max_order, abi::ByReason::each(62));
                t.max_order = decide::defaults().max_order;
            }
            assert_eq!(t, *policy.defaults(), "{}", policy.name());
        }
    }

    /// Defaults that clap cannot print by itself, as they differ by policy.
    #[test]
    fn help_names_the_defaults() {
        let (usual, reactive) = (decide::defaults(), decide::defaults_of_reactive());
        let mut cli = Cli::command();
        let help = cli.find_subcommand_mut("run").unwrap().render_long_help();
        // Lines are wrapped anywhere.
        let help = help.to_string();
        let help: Vec<&str> = help.split_whitespace().collect();
        let help = help.join(" ");
        for text in [
            format!(
                "[default: {}; reactive: {}]",
                usual.max_hold, reactive.max_hold
            ),
            format!(
                "[default: {}; reactive: {}]",
                units::show_size(usual.min_memory),
                units::show_size(reactive.min_memory)
            ),
            format!(
                "[default: {}; without back-off (--max-hold 1): {}]",
                usual_calm_share(2),
                usual_calm_share(1)
            ),
            format!("[default: {}]", units::show_duration(usual.threshold_ns)),
        ] {
            assert!(help.contains(&text), "{text}: {help}");
        }
    }

    /// The bench sweeps each constant around its default.
    #[test]
    fn the_sweeps_know_the_defaults() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/lab/bench/variants.py");
        let text = std::fs::read_to_string(file).unwrap();
        let sizes = Sizes {
            orders: 0x3fc,
            page_shift: 12,
        };
        let tunables = |words: &[&str]| {
            run(words)
                .unwrap()
                .tunables(&abi::Tunables::default(), &sizes, true)
        };
        let mut sweeps = 0;
        for (head, rest) in text
            .split("Sweep(")
            .zip(text.split("Sweep(").skip(1))
            .filter(|(head, _)| head.ends_with(": "))
        {
            let option = head.rsplit('"').nth(1).unwrap();
            let default = rest.split('"').nth(1).unwrap();
            let option = format!("--{option}");
            assert_eq!(
                tunables(&[&option, default]),
                tunables(&[]),
                "{option} {default}"
            );
            sweeps += 1;
        }
        assert!(sweeps > 10, "{sweeps}");
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
            ["--sample-every", "0"],
            ["--sample-every", "24"],
            ["--sample-every", "8192"],
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
        let caps = run(&collapse).unwrap().max_order.unwrap().tunable();
        assert_eq!(caps[abi::Reason::Collapse], 4);
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
            ["--sample-every", "4096"],
        ] {
            assert!(run(&good).is_ok(), "{good:?}");
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! The arguments of each command; doc comments are their help texts.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};

use super::exporter::Address;
use super::given::Given;
use super::lookup::{CONFIG, Directory};
use crate::errors::EXIT_CODES;
use crate::model::ending::OnExit;
use crate::model::units;

/// Whether one was given matters: clap's own default would hide it.
const POLICY_HELP: &str = "Policy (see `mthp_ext policies`), or a file of your own that ends with \
                           .toml; options you give override its values [default: default]";

/// What `settings` does.
#[derive(Debug, Subcommand)]
pub enum SettingsCommand {
    /// Show each setting, what a policy needs, and why; changes nothing
    #[command(after_help = EXIT_CODES)]
    Show(OutputArgs),
    /// Set those that differ, and save what was before; leave alone what was changed by hand since
    /// the last `apply`
    #[command(after_help = EXIT_CODES)]
    Apply(ApplyArgs),
    /// Put back what was before the first `apply`; leave alone what was changed by hand since
    #[command(after_help = EXIT_CODES)]
    Undo(OutputArgs),
}

/// Options of `settings apply`.
#[derive(Debug, Args)]
pub struct ApplyArgs {
    /// Show what would be set; change nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// Options of the commands that only show something.
#[derive(Debug, Args)]
pub struct OutputArgs {
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// Options of `status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,

    /// Indent the cgroups by their depth, without the path of those above
    #[arg(long)]
    pub tree: bool,

    /// Print it again after this time, until Ctrl-C; on a terminal in the same place
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "2s", value_parser = interval)]
    pub watch: Option<Duration>,
}

/// Options of `explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// The cgroup: its path as `status` shows it, its directory, or the name of a systemd unit
    #[arg(value_name = "CGROUP")]
    pub cgroup: OsString,

    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// Options of `set`.
#[derive(Debug, Args)]
pub struct SetArgs {
    /// As an override of the configuration: off, policy=NAME, OPTION=VALUE, several of them
    #[arg(value_name = "VALUE", required = true)]
    pub words: Vec<String>,

    /// Which, and how it is printed.
    #[command(flatten)]
    pub of: UnsetArgs,
}

/// Options of `unset`.
#[derive(Debug, Args)]
pub struct UnsetArgs {
    /// The cgroup: its path as `status` shows it, its directory, or the name of a systemd unit;
    /// without it that of this process
    #[arg(long, value_name = "CGROUP")]
    pub cgroup: Option<OsString>,

    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// Options of `top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// Time between two looks
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = interval)]
    pub interval: Duration,
}

/// Options of `events`.
#[derive(Debug, Args)]
pub struct EventsArgs {
    /// Go on with what is reported from now on, until Ctrl-C
    #[arg(long, short)]
    pub follow: bool,

    /// Only what was reported within this time
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub since: Option<Duration>,

    /// Print JSON lines instead of text
    #[arg(long)]
    pub json: bool,
}

/// Options of `compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// The answers of `status --json` to compare with; of `status --json --watch TIME` they also say how
    /// much of a difference is noise
    #[arg(value_name = "BEFORE.json")]
    pub before: PathBuf,

    /// Those that are compared
    #[arg(value_name = "AFTER.json")]
    pub after: PathBuf,

    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// A time between two answers: shorter ones would be nothing but work for the kernel.
fn interval(text: &str) -> Result<Duration, String> {
    let time = units::duration(text)?;
    if (Duration::from_millis(100)..=Duration::from_secs(86_400)).contains(&time) {
        Ok(time)
    } else {
        Err("must be 100ms to 1440m".to_owned())
    }
}

/// Options of `policies`.
#[derive(Debug, Args)]
pub struct PoliciesArgs {
    /// Where policies are.
    #[command(flatten)]
    pub directory: Directory,

    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// Options of `config` and `check-config`.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// The configuration, with the drop-ins of the directory beside it (config.d of config.toml)
    #[arg(value_name = "FILE", default_value = CONFIG)]
    file: PathBuf,

    /// Where policies are.
    #[command(flatten)]
    pub directory: Directory,

    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// Options of `config`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Print the effective values with their origin
    #[arg(long, required_unless_present = "keys")]
    pub show: bool,

    /// Print the keys that a configuration has, as in docs/configuration.md
    #[arg(long, conflicts_with_all = ["show", "json"])]
    pub keys: bool,

    /// Which.
    #[command(flatten)]
    pub config: ConfigArgs,
}

impl ConfigArgs {
    /// The configuration's file.
    pub fn file(&self) -> &Path {
        &self.file
    }
}

/// Options of `options` and `metrics`.
#[derive(Debug, Args)]
pub struct OptionsArgs {
    /// Print JSON instead of text
    #[arg(long, conflicts_with = "markdown")]
    pub json: bool,

    /// Print the page of docs/
    #[arg(long)]
    pub markdown: bool,
}

/// Options of `detach`.
#[derive(Debug, Args)]
pub struct DetachArgs {
    /// Only that of this cgroup: its path as `status` shows it, or its directory; without it, all
    #[arg(long, value_name = "CGROUP")]
    pub root: Option<PathBuf>,

    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// Options of `reload`.
#[derive(Debug, Args)]
pub struct ReloadArgs {
    /// The --root of the daemon: its path as `status` shows it, or its directory; without it, the
    /// only one there is
    #[arg(long, value_name = "CGROUP")]
    pub root: Option<PathBuf>,

    /// The process of the daemon, whatever its --root: ExecReload= names it ($MAINPID)
    #[arg(long, value_name = "PID", conflicts_with = "root")]
    pub pid: Option<i32>,

    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// Options of `run`.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// Cgroup to attach to: its directory, or its path as `status` shows it; the policy covers it
    /// and all its descendants, also later ones
    #[arg(long, value_name = "CGROUP", default_value = "/sys/fs/cgroup")]
    pub root: PathBuf,

    /// The policy; without it the one named `default`.
    #[arg(long, value_name = "NAME|FILE", help = POLICY_HELP)]
    pub policy: Option<String>,

    /// Take policies from a configuration, and give cgroups those of its overrides; SIGHUP reads it again
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = CONFIG,
          conflicts_with_all = ["policy", "object"])]
    pub config: Option<PathBuf>,

    /// Where policies are.
    #[command(flatten)]
    pub directory: Directory,

    /// Load this BPF object in the place of the one that is built in (docs/policies.md)
    #[arg(long, value_name = "FILE")]
    pub object: Option<PathBuf>,

    /// Values of the options.
    #[command(flatten)]
    pub given: Given,

    /// What becomes of the policy when mthp_ext ends [default: what the configuration says, else
    /// detach]
    #[arg(long, value_name = "WHAT", value_enum)]
    pub on_exit: Option<OnExit>,

    /// Show what would be attached, with what differs from the defaults; attach nothing, and look at no cgroup
    #[arg(long)]
    pub check: bool,

    /// Narrow nothing; count and print what the policy would do, for `status` and `advise`
    #[arg(long)]
    pub dry_run: bool,

    /// Serve OpenMetrics there (docs/metrics.md): unix:/PATH, a port of loopback, or IP:PORT; may be
    /// given several times
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Vec<Address>,

    /// Print JSON lines instead of text
    #[arg(long)]
    pub json: bool,
}

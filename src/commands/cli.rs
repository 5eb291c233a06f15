// SPDX-License-Identifier: GPL-2.0-only
//! The command line.  Doc comments here are the help texts; the options of the rules are in
//! the table (model/options.rs).

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::error::{ContextKind, ContextValue};
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

use super::exporter::Address;
use super::given::Given;
use super::schema;
use crate::errors::{EXIT_CODES, Error, Result};
use crate::model::abi::Tunables;
use crate::model::ending::OnExit;
use crate::model::options::Opt;
use crate::model::orders::Sizes;
use crate::model::policy::{BUILT_IN, ENDING, Mistake, Policy};
use crate::model::resolve;
use crate::model::units;

/// The policy without `--policy`.
const DEFAULT: &str = "default";

/// Whether one was given matters: clap's own default would hide it.
const POLICY_HELP: &str = "Policy (see `mthp_ext policies`), or a file of your own that ends with \
                           .toml; options you give override its values [default: default]";

/// Where policies are looked for first.
const DIRECTORY: &str = "/etc/mthp_ext/policies";

/// Whether one was given matters here, too.
const DIRECTORY_HELP: &str = "Directory of policies of your own; they override those built in \
                              [default: /etc/mthp_ext/policies]";

/// Page-size policy per cgroup: makes transparent huge pages safe under memory
/// pressure
///
/// A BPF policy in the kernel decides at each request which page sizes a cgroup may
/// get. It needs a kernel with the mthp_ext series. When mthp_ext ends, in whatever
/// way, the next page fault follows transparent_hugepage/enabled again, unless the
/// policy is to be kept.
#[derive(Debug, Parser)]
#[command(name = "mthp_ext", version, after_help = EXIT_CODES, max_term_width = 100)]
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
    /// Detach policies that `run --on-exit keep` has left
    #[command(after_help = EXIT_CODES)]
    Detach(DetachArgs),
    /// Have the running daemon read its configuration again, and wait until that is in force or refused
    #[command(after_help = EXIT_CODES)]
    Reload(ReloadArgs),
    /// Give one cgroup a policy or other values: write its user.mthp_ext, and have daemons take it over
    ///
    /// It is for a unit that says for itself what it needs: without --cgroup it is for the unit that
    /// runs it, as ExecStartPre=. It ends with the cgroup.
    #[command(after_help = EXIT_CODES)]
    Set(SetArgs),
    /// Take away what `set` has written
    #[command(after_help = EXIT_CODES)]
    Unset(UnsetArgs),
    /// Show where policies are attached, and what each cgroup may use now and why
    #[command(after_help = EXIT_CODES)]
    Status(StatusArgs),
    /// Say in words what the policies of `run --dry-run` would have done, what to expect of them and what to do
    #[command(after_help = EXIT_CODES)]
    Advise(OutputArgs),
    /// Say what one cgroup may use now, which rules decide that, by which numbers, and what would
    /// change it
    #[command(after_help = EXIT_CODES)]
    Explain(ExplainArgs),
    /// Show the cgroups on the terminal, the busiest first, with what each may use and why; q quits
    #[command(after_help = EXIT_CODES)]
    Top(TopArgs),
    /// Print what the daemons have reported: decisions with their reasons, configurations, starts and ends
    ///
    /// The lines are those of `run`, which keeps the newest of them in /run/mthp_ext/events; in text they begin with
    /// the time of day in place of seconds since boot.
    #[command(after_help = EXIT_CODES)]
    Events(EventsArgs),
    /// Say what two nodes, or two days of one, do otherwise, beyond noise: of two files with answers of
    /// `status --json`
    #[command(after_help = EXIT_CODES)]
    Compare(CompareArgs),
    /// List the policies of `run`: for whom, which rules, which options they set
    #[command(after_help = EXIT_CODES)]
    Policies(PoliciesArgs),
    /// List the options of policies: unit, range, default, and what they do
    #[command(after_help = EXIT_CODES)]
    Options(OptionsArgs),
    /// List the metrics that `run --metrics` serves: type, labels, and what they are
    #[command(after_help = EXIT_CODES)]
    Metrics(OptionsArgs),
    /// Print the JSON schema of what a command prints with --json; without a name, list them
    #[command(after_help = EXIT_CODES)]
    Schema(SchemaArgs),
    /// Name each mistake of a configuration, with file and line; changes nothing
    #[command(after_help = EXIT_CODES)]
    CheckConfig(ConfigArgs),
    /// Show what a configuration comes to: each value, and where it is from
    #[command(after_help = EXIT_CODES)]
    Config(ShowArgs),
    /// Show, set or put back the settings of transparent huge pages that a policy needs
    Settings {
        /// What to do.
        #[command(subcommand)]
        command: SettingsCommand,
    },
    /// Check this system for what mthp_ext needs; changes nothing
    #[command(after_help = EXIT_CODES)]
    Support(OutputArgs),
    /// Print what a shell needs to complete commands and options
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the manual pages, one for each command
    Man {
        /// The directory that gets them
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

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
fn interval(text: &str) -> std::result::Result<Duration, String> {
    let time = units::duration(text)?;
    if (Duration::from_millis(100)..=Duration::from_secs(86_400)).contains(&time) {
        Ok(time)
    } else {
        Err("must be 100ms to 1440m".to_owned())
    }
}

/// Where policies of the user's own are looked for.
#[derive(Clone, Debug, Default, Args)]
pub struct Directory {
    /// The directory; without it [`DIRECTORY`], which need not be there.
    #[arg(long = "policy-dir", value_name = "DIR", help = DIRECTORY_HELP)]
    pub policy_dir: Option<PathBuf>,
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
    #[arg(value_name = "FILE", default_value = super::config::FILE)]
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

/// Options of `schema`.
#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// The command
    #[arg(value_name = "COMMAND", value_parser = schema::names())]
    pub command: Option<String>,
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

    /// The policy; without it that of [`DEFAULT`].
    #[arg(long, value_name = "NAME|FILE", help = POLICY_HELP)]
    pub policy: Option<String>,

    /// Take policies from a configuration, and give cgroups those of its overrides; SIGHUP reads it again
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = super::config::FILE,
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

/// The command line of this process, which ends with a message if it has a mistake.
pub fn parse() -> Cli {
    Cli::try_parse().unwrap_or_else(|error| {
        let runs = std::env::args_os().nth(1).is_some_and(|word| word == "run");
        let error = if runs { hinted(error) } else { error };
        error.exit()
    })
}

/// Policies set every option by its name, the command line most of them: it says how the others
/// are given.
fn hinted(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let name = word.trim_start_matches('-').split('=').next();
    let option = name.and_then(Opt::named).filter(|option| option.measuring);
    if let Some(option) = option {
        let how = format!(
            "it is for measuring alone: '--set {}={}'",
            option.name, option.value_name
        );
        error.remove(ContextKind::SuggestedArg);
        let hint = ContextValue::StyledStrs(vec![how.into()]);
        error.insert(ContextKind::Suggested, hint);
    }
    error
}

/// A mistake in `file`, or without any in what the user gave.
fn wrong(file: Option<&Path>, mistake: Mistake) -> Error {
    let what = mistake.what;
    let Some(file) = file else {
        return Error::Usage(format!("{what}."));
    };
    let place = match mistake.line {
        Some(line) => format!("{}:{line}", file.display()),
        None => file.display().to_string(),
    };
    Error::Policy { place, what }
}

/// Do the values of a policy go together, whatever the user may give beside them?
///
/// # Errors
/// [`Error::Policy`].
pub fn check(policy: &Policy) -> Result<()> {
    let file = policy.file.as_deref();
    resolve::sound(policy).map_err(|mistake| wrong(file, mistake))
}

/// Reads the file of a policy.
///
/// # Errors
/// [`Error::Policy`] with its first mistake, or [`Error::Usage`] if it cannot be read.
pub fn read_policy(file: &Path) -> Result<Policy> {
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    let text = std::fs::read_to_string(file).map_err(|e| {
        Error::Usage(format!(
            "cannot read the policy {}: {e}. Name a file that you may read, \
             or one of the policies that `mthp_ext policies` lists.",
            file.display()
        ))
    })?;
    let policy = Policy::parse(&name, &text).map_err(|mistake| wrong(Some(file), mistake))?;
    Ok(Policy {
        file: Some(file.to_owned()),
        ..policy
    })
}

/// Is nothing there?  What cannot be looked at might be, and so might what a link on the way
/// leads to.
fn is_absent(path: &Path) -> bool {
    match path.symlink_metadata() {
        Err(e) if e.kind() == ErrorKind::NotFound => match path.parent() {
            Some(up) if up != Path::new("") => up.is_dir() || is_absent(up),
            _ => true,
        },
        _ => false,
    }
}

impl Directory {
    /// Its path.
    pub fn path(&self) -> &Path {
        self.policy_dir.as_deref().unwrap_or(Path::new(DIRECTORY))
    }

    /// Names of the policies in it.
    ///
    /// # Errors
    /// [`Error::Usage`] if it cannot be read; none need be there if none was given.
    pub fn names(&self) -> Result<Vec<String>> {
        let path = self.path();
        if self.policy_dir.is_none() && is_absent(path) {
            return Ok(Vec::new());
        }
        let entries =
            std::fs::read_dir(path).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
        let entries = entries.map_err(|e| {
            Error::Usage(format!(
                "cannot read the directory of policies {}: {e}. What is in it overrides what is \
                 built in, so nothing is taken in its place: name a directory that you may read.",
                path.display()
            ))
        })?;
        let mut names: Vec<String> = entries
            .iter()
            .map(std::fs::DirEntry::path)
            .filter(|path| path.extension().is_some_and(|ending| ending == ENDING))
            .filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned()))
            .collect();
        names.sort();
        Ok(names)
    }
}

/// The policy that a word of the command line means: a file, one of the directory, or one that
/// is built in.
///
/// # Errors
/// [`Error::Usage`] if there is none, or if the directory cannot be read; [`Error::Policy`] if it
/// has a mistake.
pub fn policy(word: &str, directory: &Directory) -> Result<Policy> {
    let file = Path::new(word);
    if word.contains('/') || file.extension().is_some_and(|ending| ending == ENDING) {
        return read_policy(file);
    }
    // A mistyped one would go unnoticed where a policy of that name is built in.
    directory.names()?;
    let own = Policy::path_in(directory.path(), word);
    if !is_absent(&own) {
        return read_policy(&own);
    }
    match Policy::built_in(word) {
        Some(Ok(policy)) => Ok(policy),
        Some(Err(mistake)) => Err(wrong(
            Some(&Policy::path_in("policies".as_ref(), word)),
            mistake,
        )),
        None => {
            let known: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
            Err(Error::Usage(format!(
                "there is no policy '{word}', neither built in ({}) nor in {}. \
                 For a file elsewhere give its path.",
                known.join(", "),
                directory.path().display()
            )))
        }
    }
}

impl RunArgs {
    /// For an object that takes no values: were any given?
    ///
    /// # Errors
    /// [`Error::Usage`] that names them.
    fn no_values(&self) -> Result<()> {
        let policy = self.policy.iter().map(|_| "policy");
        let directory = self.directory.policy_dir.iter().map(|_| "policy-dir");
        let values = self.given.values.iter().map(|(option, _)| option.name);
        let dry = self.dry_run.then_some("dry-run");
        let given: Vec<&str> = policy.chain(directory).chain(values).chain(dry).collect();
        let (Some(object), [_, ..]) = (&self.object, given.as_slice()) else {
            return Ok(());
        };
        Err(Error::Usage(format!(
            "the object {} has no tunables, so it would not obey {}: leave that out, or give the \
             object the sections .rodata.mthp and .data.mthp (docs/policies.md).",
            object.display(),
            given.join(", ")
        )))
    }

    /// The policy with the constants of its programs.  Programs that are not `tunable` obey no
    /// policy: theirs are the table's, of which trigger and scan have their times.
    ///
    /// # Errors
    /// [`Error::Usage`] or [`Error::Policy`].
    pub fn resolve(&self, sizes: &Sizes, tunable: bool) -> Result<(Option<Policy>, Tunables)> {
        if tunable {
            let (policy, tunables) = self.values(sizes)?;
            return Ok((Some(policy), tunables));
        }
        self.no_values()?;
        let tunables = resolve::defaults(sizes).map_err(|mistake| wrong(None, mistake))?;
        Ok((None, tunables))
    }

    /// The configuration that it takes: the one given, or the usual one if it is there and nothing
    /// else is said of policies.
    ///
    /// # Errors
    /// [`Error::Usage`] for options of policies beside it.
    pub fn configuration(&self) -> Result<Option<PathBuf>> {
        let values = self.given.values.iter().next();
        if let (Some(file), Some((option, _))) = (&self.config, values) {
            return Err(Error::Usage(format!(
                "{} and the configuration {} do not go together: set it there",
                option.name,
                file.display()
            )));
        }
        let usual = Path::new(super::config::FILE);
        let free = self.policy.is_none() && self.object.is_none() && values.is_none();
        let there = self.config.is_none() && free && !is_absent(usual);
        Ok(self.config.clone().or(there.then(|| usual.to_owned())))
    }

    fn values(&self, sizes: &Sizes) -> Result<(Policy, Tunables)> {
        let policy = policy(self.policy.as_deref().unwrap_or(DEFAULT), &self.directory)?;
        let tunables = resolve::tunables(&policy, &self.given.values, sizes);
        // Without a line it is not the file's fault alone.
        let tunables = tunables.map_err(|mistake| {
            let file = policy.file.as_deref().filter(|_| mistake.line.is_some());
            wrong(file, mistake)
        })?;
        Ok((policy, tunables))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ending::Ending;
    use crate::model::options::OPTIONS;
    use crate::model::orders::X86;
    use crate::model::place::Place;
    use clap::CommandFactory;

    /// An empty directory, not that of the machine.
    fn nowhere() -> (tempfile::TempDir, Directory) {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory {
            policy_dir: Some(dir.path().to_owned()),
        };
        (dir, directory)
    }

    fn parsed(args: &[&str]) -> std::result::Result<RunArgs, clap::Error> {
        let cli = Cli::try_parse_from(["mthp_ext", "run"].iter().chain(args))?;
        match cli.command {
            Command::Run(run) => Ok(run),
            other => panic!("{other:?}"),
        }
    }

    fn run(args: &[&str]) -> std::result::Result<(Policy, Tunables), u8> {
        let (_dir, directory) = nowhere();
        let run = RunArgs {
            directory,
            ..parsed(args).map_err(|_| 2)?
        };
        let (policy, tunables) = run.resolve(&X86, true).map_err(|e| e.code())?;
        Ok((policy.unwrap(), tunables))
    }

    #[test]
    fn a_time_to_watch_by_may_be_left_out() {
        let watch = |args: &[&str]| {
            let cli = Cli::try_parse_from(["mthp_ext", "status"].iter().chain(args)).ok()?;
            match cli.command {
                Command::Status(status) => Some(status.watch),
                _ => None,
            }
        };
        assert_eq!(watch(&[]), Some(None));
        assert_eq!(watch(&["--watch"]), Some(Some(Duration::from_secs(2))));
        let given = watch(&["--watch", "500ms", "--json"]);
        assert_eq!(given, Some(Some(Duration::from_millis(500))));
        for bad in ["0s", "1ms", "2d", "-1s"] {
            assert_eq!(watch(&["--watch", bad]), None, "{bad}");
        }
    }

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_command_line_comes_before_the_policy() {
        let (policy, usual) = run(&[]).unwrap();
        assert_eq!(
            (policy.name.as_str(), usual.min_memory),
            ("default", 8 << 20)
        );
        let (_, services) = run(&["--policy", "small-services"]).unwrap();
        assert_eq!(
            (services.min_memory, services.sparse_bytes),
            (64 << 20, 16 << 20)
        );
        for words in [
            ["--policy", "small-services", "--min-memory", "1M"],
            ["--min-memory", "1M", "--policy", "small-services"],
        ] {
            let (_, t) = run(&words).unwrap();
            assert_eq!((t.min_memory, t.sparse_bytes), (1 << 20, 16 << 20));
        }
        let (_, set) = run(&["--set", "max-hold=8", "--set", "count-machine=0"]).unwrap();
        assert_eq!((set.max_hold, set.count_machine), (8, 0));
    }

    #[test]
    fn the_end_that_a_unit_gives_is_the_last_word_of_nobody() {
        let end = |args: &[&str], configured: Option<OnExit>| {
            let place = Place {
                file: "/c.toml".into(),
                line: Some(3),
            };
            let configured = configured.map(|on_exit| (on_exit, place));
            let given = parsed(args).unwrap().on_exit;
            Ending::chosen(given, configured.as_ref()).to_string()
        };
        let (keep, detach) = (Some(OnExit::Keep), Some(OnExit::Detach));
        assert_eq!(end(&[], None), "detach (default)");
        assert_eq!(end(&[], keep), "keep (/c.toml:3)");
        let unit = ["--on-exit", "hand-over"];
        assert_eq!(end(&unit, None), "hand-over (--on-exit)");
        assert_eq!(end(&unit, keep), "keep (/c.toml:3)");
        assert_eq!(end(&unit, detach), "detach (/c.toml:3)");
        let hand_over = Some(OnExit::HandOver);
        assert_eq!(end(&unit, hand_over), "hand-over (/c.toml:3)");
        assert_eq!(end(&["--on-exit", "detach"], keep), "detach (--on-exit)");
        assert_eq!(end(&["--on-exit", "keep"], detach), "keep (--on-exit)");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for bad in [
            &["--threshold", "0ms"][..],
            &["--threshold", "2s"],
            &["--window", "11s"],
            &["--cap", "63"],
            &["--cap", "collapse=64K"],
            &["--policy", "fixed"],
            &["--policy", "headroom", "--min-memory", "64M"],
            &["--policy", "fixed", "--cap", "4K", "--window", "2s"],
            &["--policy", "none"],
            &["--policy", "/proc/none/a.toml"],
            &["--set", "window=1s"],
            &["--set", "max-hold"],
            &["--set", "max-hold=0"],
            &["--max-hold", "8"],
        ] {
            assert_eq!(run(bad).unwrap_err(), 2, "{bad:?}");
        }
        assert!(run(&["--cap", "collapse=64K", "--bind", "collapse"]).is_ok());
        assert!(run(&["--policy", "fixed", "--cap", "64K"]).is_ok());
    }

    #[test]
    fn what_an_object_does_not_obey_is_named() {
        let resolved = |args: &[&str]| {
            let run = parsed(&[&["--object", "/o"], args].concat()).unwrap();
            run.resolve(&X86, false).map_err(|e| e.to_string())
        };
        // No policy of the machine's matters to it, be it as it may.
        let (policy, t) = resolved(&[]).unwrap();
        assert!(policy.is_none());
        assert_eq!((t.threshold_ns, t.window_ns), (100_000_000, 1_000_000_000));
        let refused = |args: &[&str]| resolved(args).map(|_| ());
        for (args, part) in [
            (&["--policy", "default"][..], "obey policy:"),
            (&["--policy-dir", "/d"], "obey policy-dir:"),
            (&["--cap", "4K"], "obey cap:"),
            (&["--dry-run"], "obey dry-run:"),
            (
                &["--set", "max-hold=1", "--window", "2s"],
                "obey window, max-hold:",
            ),
        ] {
            let said = refused(args).unwrap_err();
            assert!(said.contains(part), "{said}");
        }
    }

    #[test]
    fn a_directory_comes_before_what_is_built_in() {
        let (dir, directory) = nowhere();
        let file = dir.path().join("headroom.toml");
        let text = "about = 'of our own'\nrules = ['room']\nroom-factor = 7\n";
        std::fs::write(&file, text).unwrap();
        let by_name = policy("headroom", &directory).unwrap();
        assert_eq!(by_name.about, "of our own");
        assert_eq!(by_name.file.as_deref(), Some(file.as_path()));
        let (_other, other) = nowhere();
        let by_path = policy(file.to_str().unwrap(), &other).unwrap();
        assert_eq!(by_path.name, "headroom");
        std::fs::write(&file, format!("{text}magic = 1\n")).unwrap();
        let error = policy("headroom", &directory).unwrap_err();
        assert_eq!(error.code(), 2);
        let place = format!("{}:4: ", file.display());
        assert!(error.to_string().contains(&place), "{error}");
        // It takes two keys, one of them the default: still the file's.
        let text = "about = 'of our own'\nrules = ['pressure']\nthreshold = '2s'\n";
        std::fs::write(&file, text).unwrap();
        let path = file.to_str().unwrap();
        assert_eq!(run(&["--policy", path]).unwrap_err(), 2);
        assert!(run(&["--policy", path, "--window", "2s"]).is_ok());
        let error = check(&read_policy(&file).unwrap()).unwrap_err();
        let place = format!("{}:3: threshold", file.display());
        assert!(error.to_string().starts_with(&place), "{error}");
    }

    #[test]
    fn a_name_may_have_dots() {
        let (dir, directory) = nowhere();
        for name in ["redis-7", "redis-7.2"] {
            let text = format!("about = 'of {name}'\nrules = ['room']\n");
            std::fs::write(dir.path().join(format!("{name}.toml")), text).unwrap();
        }
        for name in ["redis-7", "redis-7.2"] {
            let found = policy(name, &directory).unwrap();
            assert_eq!(
                (found.name.as_str(), found.about),
                (name, format!("of {name}"))
            );
        }
        assert_eq!(policy("redis-7.3", &directory).unwrap_err().code(), 2);
    }

    /// What cannot be looked at is not what is built in.  (Links: root may read all.)
    #[test]
    fn a_file_that_cannot_be_read_is_not_passed_over() {
        for target in ["default.toml", "/proc/none/default.toml"] {
            let (dir, directory) = nowhere();
            std::os::unix::fs::symlink(target, dir.path().join("default.toml")).unwrap();
            let error = policy("default", &directory).unwrap_err();
            assert!(error.to_string().contains("cannot read"), "{error}");
            assert!(
                policy("headroom", &directory).is_ok(),
                "of which there is none"
            );
        }
    }

    #[test]
    fn a_directory_that_is_given_is_there() {
        for missing in ["/proc/none", "/proc/self/status"] {
            for words in [&[][..], &["--policy", "headroom"]] {
                let run = parsed(&[&["--policy-dir", missing], words].concat()).unwrap();
                let error = run.resolve(&X86, true).map(|_| ()).unwrap_err();
                assert_eq!(error.code(), 2);
                assert!(error.to_string().contains(missing), "{error}");
            }
        }
    }

    /// The usual place need not be there; a link that leads to it, and on to nowhere, is one.
    #[test]
    fn absent_is_what_no_link_leads_to() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::os::unix::fs::symlink("/proc/none", at("link")).unwrap();
        std::fs::create_dir(at("empty")).unwrap();
        for absent in ["a", "a/b/c", "empty/a", "empty/a/b"] {
            assert!(is_absent(&at(absent)), "{absent}");
        }
        for there in ["link", "link/a", "link/a/b", "empty"] {
            assert!(!is_absent(&at(there)), "{there}");
        }
        assert!(is_absent(Path::new("a-name-that-nobody-uses")));
        std::fs::write(at("file"), "").unwrap();
        assert!(
            !is_absent(&at("file/a")),
            "a file in the place of a directory"
        );
    }

    #[test]
    fn an_option_for_measuring_says_how_it_is_given() {
        for words in [
            &["--max-hold", "8"][..],
            &["--max-hold=8"],
            &["--some-stall"],
        ] {
            let error = hinted(parsed(words).unwrap_err());
            assert_eq!(error.exit_code(), 2);
            let said = error.to_string();
            let name = words[0].trim_start_matches('-').split('=').next().unwrap();
            assert!(said.contains(&format!("'--set {name}=")), "{said}");
        }
        let said = hinted(parsed(&["--magic"]).unwrap_err()).to_string();
        assert!(!said.contains("--set"), "{said}");
    }

    #[test]
    fn the_help_has_every_public_option_with_its_default() {
        let mut cli = Cli::command();
        let help = cli.find_subcommand_mut("run").unwrap().render_help();
        // Lines are wrapped anywhere.
        let help = help.to_string();
        let help: Vec<&str> = help.split_whitespace().collect();
        let help = help.join(" ");
        for option in OPTIONS {
            let name = format!("--{} <", option.name);
            assert_eq!(help.contains(&name), !option.measuring, "{name}");
            let default = format!("[default: {}]", option.default);
            assert!(option.measuring || help.contains(&default), "{default}");
        }
    }
}

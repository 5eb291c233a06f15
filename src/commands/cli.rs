// SPDX-License-Identifier: GPL-2.0-only
//! The command line.  Doc comments here are the help texts; the options of the rules are in
//! the table (model/options.rs).

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

use super::given::Given;
use crate::errors::{EXIT_CODES, Error, Result};
use crate::model::abi::Tunables;
use crate::model::options;
use crate::model::orders::Sizes;
use crate::model::policy::{BUILT_IN, ENDING, Mistake, Policy};

/// The policy without `--policy`.
const DEFAULT: &str = "default";

/// Whether one was given matters: clap's own default would hide it.
const POLICY_HELP: &str = "Policy (see `mthp_ext policies`), or a file of your own that ends with \
                           .toml; options you give override its values [default: default]";

/// Where policies are looked for first.
const DIRECTORY: &str = "/etc/mthp_ext/policies";

/// Page-size policy per cgroup: makes transparent huge pages safe under memory
/// pressure
///
/// A BPF policy in the kernel decides at each request which page sizes a cgroup may
/// get. It needs a kernel with the mthp_ext series. When mthp_ext ends, in whatever
/// way, the next page fault follows transparent_hugepage/enabled again.
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
    /// Show where policies are attached, and what each cgroup may use now and why
    #[command(after_help = EXIT_CODES)]
    Status(OutputArgs),
    /// List the policies of `run`: for whom, which rules, which options they set
    #[command(after_help = EXIT_CODES)]
    Policies(PoliciesArgs),
    /// List the options of policies: unit, range, default, and what they do
    #[command(after_help = EXIT_CODES)]
    Options(OptionsArgs),
    /// Check this system for what mthp_ext needs; changes nothing
    #[command(after_help = EXIT_CODES)]
    Support(OutputArgs),
    /// Print what a shell needs to complete commands and options
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// Options of the commands that only show something.
#[derive(Debug, Args)]
pub struct OutputArgs {
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// Options of `policies`.
#[derive(Debug, Args)]
pub struct PoliciesArgs {
    /// Directory of policies of your own; they override those built in
    #[arg(long, value_name = "DIR", default_value = DIRECTORY)]
    pub policy_dir: PathBuf,

    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// Options of `options`.
#[derive(Debug, Args)]
pub struct OptionsArgs {
    /// Print JSON instead of text
    #[arg(long, conflicts_with = "markdown")]
    pub json: bool,

    /// Print docs/options.md
    #[arg(long)]
    pub markdown: bool,
}

/// Options of `run`.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// Cgroup to attach to; the policy covers it and all its descendants, also later ones
    #[arg(long, value_name = "PATH", default_value = "/sys/fs/cgroup")]
    pub root: PathBuf,

    /// The policy; without it that of [`DEFAULT`].
    #[arg(long, value_name = "NAME|FILE", help = POLICY_HELP)]
    pub policy: Option<String>,

    /// Directory of policies of your own; they override those built in
    #[arg(long, value_name = "DIR", default_value = DIRECTORY)]
    pub policy_dir: PathBuf,

    /// Load this BPF object in the place of the one that is built in (docs/policies.md)
    #[arg(long, value_name = "FILE")]
    pub object: Option<PathBuf>,

    /// Values of the options.
    #[command(flatten)]
    pub given: Given,

    /// Print JSON lines instead of text
    #[arg(long)]
    pub json: bool,
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
    options::sound(policy).map_err(|mistake| wrong(file, mistake))
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

/// The policy that a word of the command line means: a file, one of the directory, or one that
/// is built in.
///
/// # Errors
/// [`Error::Usage`] if there is none, [`Error::Policy`] if it has a mistake.
pub fn policy(word: &str, directory: &Path) -> Result<Policy> {
    let file = Path::new(word);
    if word.contains('/') || file.extension().is_some_and(|ending| ending == ENDING) {
        return read_policy(file);
    }
    let own = Policy::path_in(directory, word);
    // One that cannot be looked at might be there: not another one in its place.
    if own.try_exists().unwrap_or(true) {
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
                directory.display()
            )))
        }
    }
}

impl RunArgs {
    /// For an object that takes no values: were any given?
    ///
    /// # Errors
    /// [`Error::Usage`] that names them.
    pub fn no_values(&self) -> Result<()> {
        let policy = self.policy.iter().map(|_| "policy");
        let values = self.given.values.iter().map(|(option, _)| option.name);
        let given: Vec<&str> = policy.chain(values).collect();
        let (Some(object), [_, ..]) = (&self.object, given.as_slice()) else {
            return Ok(());
        };
        Err(Error::Usage(format!(
            "the object {} has no tunables, so it would not obey {}: leave that out, or give the \
             object a section .rodata.mthp (docs/policies.md).",
            object.display(),
            given.join(", ")
        )))
    }

    /// The policy with the constants of its programs.
    ///
    /// # Errors
    /// [`Error::Usage`] or [`Error::Policy`].
    pub fn resolve(&self, sizes: &Sizes) -> Result<(Policy, Tunables)> {
        let policy = policy(self.policy.as_deref().unwrap_or(DEFAULT), &self.policy_dir)?;
        let tunables = options::tunables(&policy, &self.given.values, sizes);
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
    use crate::model::options::OPTIONS;
    use clap::CommandFactory;

    const X86: Sizes = Sizes {
        orders: 0x3fc,
        page_shift: 12,
    };

    fn run(args: &[&str]) -> std::result::Result<(Policy, Tunables), u8> {
        let argv = ["mthp_ext", "run", "--policy-dir", "/proc/none"];
        let cli = Cli::try_parse_from(argv.iter().chain(args)).map_err(|_| 2)?;
        let Command::Run(run) = cli.command else {
            panic!("asked for run")
        };
        run.resolve(&X86).map_err(|e| e.code())
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
        let refused = |args: &[&str]| {
            let argv = ["mthp_ext", "run", "--object", "/o"];
            let cli = Cli::try_parse_from(argv.iter().chain(args)).unwrap();
            let Command::Run(run) = cli.command else {
                panic!("asked for run")
            };
            run.no_values().map_err(|e| e.to_string())
        };
        assert_eq!(refused(&[]), Ok(()));
        for (args, part) in [
            (&["--policy", "default"][..], "obey policy:"),
            (&["--cap", "4K"], "obey cap:"),
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
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("headroom.toml");
        let text = "about = 'of our own'\nrules = ['room']\nroom-factor = 7\n";
        std::fs::write(&file, text).unwrap();
        let by_name = policy("headroom", dir.path()).unwrap();
        assert_eq!(by_name.about, "of our own");
        assert_eq!(by_name.file.as_deref(), Some(file.as_path()));
        let by_path = policy(file.to_str().unwrap(), Path::new("/proc/none")).unwrap();
        assert_eq!(by_path.name, "headroom");
        std::fs::write(&file, format!("{text}magic = 1\n")).unwrap();
        let error = policy("headroom", dir.path()).unwrap_err();
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
        let dir = tempfile::tempdir().unwrap();
        for name in ["redis-7", "redis-7.2"] {
            let text = format!("about = 'of {name}'\nrules = ['room']\n");
            std::fs::write(dir.path().join(format!("{name}.toml")), text).unwrap();
        }
        for name in ["redis-7", "redis-7.2"] {
            let found = policy(name, dir.path()).unwrap();
            assert_eq!(
                (found.name.as_str(), found.about),
                (name, format!("of {name}"))
            );
        }
        assert_eq!(policy("redis-7.3", dir.path()).unwrap_err().code(), 2);
    }

    /// What cannot be looked at is not what is built in.  (A link to itself: root may read all.)
    #[test]
    fn a_file_that_cannot_be_read_is_not_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("default.toml", dir.path().join("default.toml")).unwrap();
        let error = policy("default", dir.path()).unwrap_err();
        assert!(error.to_string().contains("cannot read"), "{error}");
    }

    #[test]
    fn the_help_has_every_public_option_with_its_default() {
        let mut cli = Cli::command();
        let help = cli.find_subcommand_mut("run").unwrap().render_help();
        // Lines are wrapped anywhere.
        let help = help.to_string();
        let help: Vec<&str> = help.split_whitespace().collect();
        let help = help.join(" ");
        for option in &OPTIONS {
            let name = format!("--{} <", option.name);
            assert_eq!(help.contains(&name), !option.measuring, "{name}");
            let default = format!("[default: {}]", option.default);
            assert!(option.measuring || help.contains(&default), "{default}");
        }
    }
}

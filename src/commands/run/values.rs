// SPDX-License-Identifier: GPL-2.0-only
//! What the options of `run` come to: the policy with its values, or a configuration.

use std::path::{Path, PathBuf};

use crate::commands::args::RunArgs;
use crate::commands::lookup::{self, CONFIG};
use crate::errors::{Error, Result};
use crate::model::abi::Tunables;
use crate::model::orders::Sizes;
use crate::model::policy::Policy;
use crate::model::resolve;

/// The policy without `--policy`.
const DEFAULT: &str = "default";

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
        let tunables = resolve::defaults(sizes).map_err(|mistake| lookup::wrong(None, mistake))?;
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
        let usual = Path::new(CONFIG);
        let free = self.policy.is_none() && self.object.is_none() && values.is_none();
        let there = self.config.is_none() && free && !lookup::is_absent(usual);
        Ok(self.config.clone().or(there.then(|| usual.to_owned())))
    }

    fn values(&self, sizes: &Sizes) -> Result<(Policy, Tunables)> {
        let policy = lookup::policy(self.policy.as_deref().unwrap_or(DEFAULT), &self.directory)?;
        let tunables = resolve::tunables(&policy, &self.given.values, sizes);
        // Without a line it is not the file's fault alone.
        let tunables = tunables.map_err(|mistake| {
            let file = policy.file.as_deref().filter(|_| mistake.line.is_some());
            lookup::wrong(file, mistake)
        })?;
        Ok((policy, tunables))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::commands::cli::{Cli, Command};
    use crate::commands::lookup::tests::nowhere;
    use crate::model::ending::{Ending, OnExit};
    use crate::model::orders::X86;
    use crate::model::place::Place;

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
        let (_, set) = run(&["--set", "sample-every=8", "--set", "count-machine=0"]).unwrap();
        assert_eq!((set.sample_mask, set.count_machine), (7, 0));
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
            &["--set", "sample-every"],
            &["--set", "sample-every=0"],
            &["--sample-every", "8"],
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
                &["--set", "sample-every=1", "--window", "2s"],
                "obey window, sample-every:",
            ),
        ] {
            let said = refused(args).unwrap_err();
            assert!(said.contains(part), "{said}");
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

    /// It takes two keys, one of them the default.
    #[test]
    fn values_that_do_not_go_together_are_the_files_fault() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("headroom.toml");
        let text = "about = 'of our own'\nrules = ['pressure']\nthreshold = '2s'\n";
        std::fs::write(&file, text).unwrap();
        let path = file.to_str().unwrap();
        assert_eq!(run(&["--policy", path]).unwrap_err(), 2);
        assert!(run(&["--policy", path, "--window", "2s"]).is_ok());
        let error = lookup::check(&lookup::read_policy(&file).unwrap()).unwrap_err();
        let place = format!("{}:3: threshold", file.display());
        assert!(error.to_string().starts_with(&place), "{error}");
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! `mthp_ext policies`: what `--policy` can name.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;

use super::args::PoliciesArgs;
use super::lookup::{self, Directory};
use crate::errors::{Error, Result};
use crate::model::policy::{BUILT_IN, Policy};
use crate::model::rule::Rules;
use crate::output::print;

/// A policy as it is shown.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Shown {
    policy: String,
    /// Its file; null: built in.
    file: Option<PathBuf>,
    about: String,
    rules: Rules,
    /// Options in which it differs from their defaults, as they are written.
    options: BTreeMap<&'static str, String>,
}

impl From<Policy> for Shown {
    fn from(policy: Policy) -> Self {
        let values = policy.values.iter();
        Shown {
            options: values
                .map(|(option, value)| (option.name, option.text(value)))
                .collect(),
            policy: policy.name,
            file: policy.file,
            about: policy.about,
            rules: policy.rules,
        }
    }
}

/// A file that cannot be used.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Bad {
    policy: String,
    error: String,
    #[serde(skip)]
    cause: Error,
}

/// A row of the list.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Row {
    /// It can be used.
    Good(Shown),
    /// It cannot.
    Bad(Bad),
}

/// Those that are built in, then those of the directory that are not called like one of them.
fn all(directory: &Directory) -> Result<Vec<Row>> {
    let mut names: Vec<String> = BUILT_IN
        .iter()
        .map(|(name, _)| (*name).to_owned())
        .collect();
    let own = directory.names()?;
    names.extend(
        own.into_iter()
            .filter(|name| Policy::built_in(name).is_none()),
    );
    let shown = |name: &String| -> Result<Shown> {
        let policy = lookup::policy(name, directory)?;
        lookup::check(&policy)?;
        Ok(Shown::from(policy))
    };
    let row = |name: String| match shown(&name) {
        Ok(shown) => Row::Good(shown),
        Err(cause) => Row::Bad(Bad {
            policy: name,
            error: cause.to_string(),
            cause,
        }),
    };
    Ok(names.into_iter().map(row).collect())
}

fn text(all: &Vec<Row>, out: &mut impl Write) -> io::Result<()> {
    for row in all {
        let one = match row {
            Row::Good(one) => one,
            Row::Bad(bad) => {
                writeln!(out, "{}: cannot be used: {}", bad.policy, bad.error)?;
                continue;
            }
        };
        writeln!(out, "{}: {}", one.policy, one.about)?;
        let rules: Vec<&str> = one.rules.iter().map(|rule| rule.name()).collect();
        writeln!(out, "    rules: {}", rules.join(", "))?;
        for (name, value) in &one.options {
            writeln!(out, "    {name}: {value}")?;
        }
        if let Some(file) = &one.file {
            writeln!(out, "    from {}", file.display())?;
        }
    }
    Ok(())
}

/// The command.
///
/// # Errors
/// If the directory cannot be read; the first mistake in a policy of it, after all are listed; or
/// if the answer cannot be written.
pub fn main(args: &PoliciesArgs) -> Result<()> {
    let all = all(&args.directory)?;
    print::rows(&all, args.json, text)?;
    let bad = all.into_iter().find_map(|row| match row {
        Row::Bad(bad) => Some(bad.cause),
        Row::Good(_) => None,
    });
    bad.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn in_directory(path: &Path) -> Directory {
        Directory {
            policy_dir: Some(path.to_owned()),
        }
    }

    fn printed(directory: &Path) -> String {
        let mut out = Vec::new();
        text(&all(&in_directory(directory)).unwrap(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_policy_says_for_whom_and_what_it_sets() {
        let out = printed(tempfile::tempdir().unwrap().path());
        let heads = out.lines().filter(|line| !line.starts_with(' '));
        assert_eq!(heads.count(), BUILT_IN.len(), "{out}");
        assert!(
            out.contains("\n    cap: fault=64K,swapin=4K,khugepaged=4K\n"),
            "{out}"
        );
        assert!(
            out.contains("    rules: pressure, small, cap\n    bind-khugepaged: 0\n"),
            "{out}"
        );
    }

    #[test]
    fn those_of_a_directory_are_listed_with_their_file() {
        let dir = tempfile::tempdir().unwrap();
        let text = "about = 'of our own'\nrules = ['room']\n";
        for name in ["mine.toml", "fixed.toml", "notes.txt"] {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let out = printed(dir.path());
        assert_eq!(out.matches("of our own").count(), 2, "{out}");
        assert!(out.ends_with("mine.toml\n"), "{out}");
        std::fs::write(dir.path().join("mine.toml"), "rules = 1").unwrap();
        // One bad file hides no other.
        let out = printed(dir.path());
        assert_eq!(out.matches("of our own").count(), 1, "{out}");
        assert!(out.contains("mine: cannot be used: "), "{out}");
        assert!(out.contains("mine.toml:1: rules must be a list"), "{out}");
        let args = |path: &Path| PoliciesArgs {
            directory: in_directory(path),
            json: true,
        };
        assert_eq!(main(&args(dir.path())).unwrap_err().code(), 2);
        let answer = serde_json::to_value(all(&in_directory(dir.path())).unwrap()).unwrap();
        assert_eq!(print::undocumented(&answer), [""; 0]);
        let missing = dir.path().join("missing");
        let error = main(&args(&missing)).unwrap_err();
        assert!(
            error.to_string().contains("cannot read the directory"),
            "{error}"
        );
    }

    /// The pages show each policy as it is.
    #[test]
    fn every_policy_is_documented_as_it_is() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/policies");
        let none = tempfile::tempdir().unwrap();
        for row in all(&in_directory(none.path())).unwrap() {
            let Row::Good(one) = row else {
                panic!("{row:?}");
            };
            let page = docs.join(format!("{}.md", one.policy));
            let page =
                std::fs::read_to_string(&page).unwrap_or_else(|e| panic!("{}: {e}", one.policy));
            for (name, value) in &one.options {
                let said = format!("`{name}` {value}");
                assert!(page.contains(&said), "{}: {said}", one.policy);
            }
        }
    }
}

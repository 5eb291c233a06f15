// SPDX-License-Identifier: GPL-2.0-only
//! The configuration's files, `mthp_ext check-config` and `mthp_ext config`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use super::args::ConfigArgs;
use super::lookup::{self, Directory};
use super::xattrs::{Ground, OfXattr, Xattrs};
use crate::errors::{Error, Result};
use crate::kernel::cgroup::{self, Cgroup, Names};
use crate::kernel::{thp, xattr};
use crate::model::abi::Tunables;
use crate::model::config::{Config, Of, Problem, Spoils, XATTR};
use crate::model::ending::ON_EXIT;
use crate::model::orders::Sizes;
use crate::model::place::Place;
use crate::model::plan::{self, Made, Plan, Planned, Resolved};
use crate::model::policy::ENDING;
use crate::output::{print, table};

/// The directory beside a configuration whose files come after it: `config.d` of `config.toml`.
fn drop_in_directory(file: &Path) -> PathBuf {
    file.with_extension("d")
}

/// The drop-ins of a configuration, in order of name.
fn drop_ins(file: &Path) -> io::Result<Vec<PathBuf>> {
    let directory = drop_in_directory(file);
    let entries = match std::fs::read_dir(&directory) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut found = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<Vec<_>>>()?;
    found.retain(|path| path.extension().is_some_and(|ending| ending == ENDING));
    found.sort();
    Ok(found)
}

/// Why a file cannot be read, with the remedy, and the line that is to blame.
fn unread(file: &Path, e: &io::Error) -> (Option<usize>, String) {
    let (line, remedy) = match e.kind() {
        ErrorKind::InvalidData => {
            let bytes = std::fs::read(file).unwrap_or_default();
            let valid = bytes
                .utf8_chunks()
                .next()
                .map_or(0, |one| one.valid().len());
            let ends = bytes[..valid].iter().filter(|byte| **byte == b'\n');
            (Some(ends.count() + 1), "Save it as UTF-8")
        }
        ErrorKind::IsADirectory if file.extension().is_some_and(|one| one == ENDING) => {
            (None, "It is a directory: give it another ending than .toml")
        }
        ErrorKind::NotADirectory => (None, "The directory of drop-ins is a file: remove it"),
        ErrorKind::NotFound if file.is_symlink() => {
            (None, "It is a link to what is not there: remove or mend it")
        }
        _ => (None, "Name a configuration that you may read"),
    };
    (line, format!("cannot be read: {e}. {remedy}"))
}

/// What the files say.  One that cannot be read spoils the whole.
pub fn read(file: &Path) -> Config {
    let mut config = Config::default();
    let wrong = |config: &mut Config, file: &Path, e: &io::Error| {
        let (line, what) = unread(file, e);
        config.problems.push(Problem {
            place: Place {
                file: file.to_owned(),
                line,
            },
            what,
            spoils: Spoils::All,
        });
    };
    let mut files = vec![file.to_owned()];
    match drop_ins(file) {
        Ok(more) => files.extend(more),
        Err(e) => wrong(&mut config, &drop_in_directory(file), &e),
    }
    for file in files {
        match std::fs::read_to_string(&file) {
            Ok(text) => config.add(&file, &text),
            Err(e) => wrong(&mut config, &file, &e),
        }
    }
    config
}

/// What a configuration comes to.
///
/// # Errors
/// All that is wrong, if it cannot be used at all.
pub fn plan(file: &Path, directory: &Directory, sizes: &Sizes) -> Made {
    let again = |round| {
        if round > 0 {
            std::thread::sleep(PAUSE);
        }
        unchanged(file, directory, sizes)
    };
    let mut rounds = (0..=MAX_REREADS).filter_map(again);
    rounds.next().unwrap_or_else(|| Err(vec![changing(file)]))
}

/// Before files are read again: drop-ins of a host are unpacked in less, and a watchdog waits longer
/// than for all rounds.
const PAUSE: Duration = Duration::from_millis(100);

/// How often files are read again that somebody exchanges meanwhile.
const MAX_REREADS: u32 = 5;

/// Reads them once.  `None`: one was exchanged meanwhile, so some may be of before, and some not.
fn unchanged(file: &Path, directory: &Directory, sizes: &Sizes) -> Option<Made> {
    // A part of a sentence, from here on.
    let what = |e: Error| e.to_string().trim_end_matches('.').to_owned();
    let policies = RefCell::new(Stamps::new());
    let find = |name: &str| {
        let path = lookup::file_of(name, directory);
        let stamp = Stamp::of(&path);
        policies.borrow_mut().entry(path).or_insert(stamp);
        lookup::policy(name, directory).map_err(what)
    };
    let before = stamps(files_of(file));
    let made = plan::plan(&read(file), &find, sizes);
    let policies = policies.into_inner();
    let same = before == stamps(files_of(file)) && policies == stamps(policies.keys().cloned());
    same.then_some(made)
}

/// It has been exchanged again and again.
fn changing(file: &Path) -> Problem {
    Problem {
        place: Place {
            file: file.to_owned(),
            line: None,
        },
        what: format!(
            "while it was read, {} times in a row, somebody exchanged it, a drop-in or the file of a \
             policy. Read it again once they stay as they are",
            MAX_REREADS + 1
        ),
        spoils: Spoils::All,
    }
}

/// The files of a configuration itself, without those of its policies.
fn files_of(file: &Path) -> impl Iterator<Item = PathBuf> {
    let drop_ins = drop_ins(file).unwrap_or_default();
    [file.to_owned()].into_iter().chain(drop_ins)
}

/// Tells one content of a path from the next: what a link leads to, what was moved there, and what
/// was written.  kubelet exchanges all files of a volume at once, by one link (`..data`) that all
/// names go through.
#[derive(PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl Stamp {
    /// `None`: there is no file.  A pipe changes as it is read, and cannot be read again.
    fn of(path: &Path) -> Option<Self> {
        let found = std::fs::metadata(path).ok()?;
        found.is_file().then(|| Stamp {
            device: found.dev(),
            inode: found.ino(),
            bytes: found.len(),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }
}

/// Of each of several paths.
type Stamps = BTreeMap<PathBuf, Option<Stamp>>;

fn stamps(paths: impl Iterator<Item = PathBuf>) -> Stamps {
    paths.map(|path| (path.clone(), Stamp::of(&path))).collect()
}

/// A mistake, and what comes of it.
#[derive(Debug, Serialize, JsonSchema)]
struct Mistake<'a> {
    file: &'a Path,
    line: Option<usize>,
    what: &'a str,
    spoils: Spoils,
}

/// The answer of `check-config`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Checked<'a> {
    file: &'a Path,
    mistakes: Vec<Mistake<'a>>,
}

fn mistakes(problems: &[Problem]) -> Vec<Mistake<'_>> {
    let all = problems.iter().map(|one| Mistake {
        file: &one.place.file,
        line: one.place.line,
        what: &one.what,
        spoils: one.spoils,
    });
    all.collect()
}

/// A value as it is written in a policy.
#[derive(Debug, Serialize, JsonSchema)]
struct Effective {
    option: &'static str,
    value: String,
    origin: String,
}

/// What some cgroups have.
#[derive(Debug, Serialize, JsonSchema)]
struct Shown<'a> {
    /// Null: all that no override matches.
    cgroups: Option<Vec<String>>,
    /// Where it is configured; null for the root's, and for what cgroups say.
    file: Option<&'a Path>,
    line: Option<usize>,
    /// What the cgroups say for themselves; null: they are patterns.
    xattr: Option<String>,
    policy: &'a str,
    rules: Vec<&'static str>,
    rules_origin: &'a str,
    values: Vec<Effective>,
}

/// The answer of `config --show`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Configuration<'a> {
    file: &'a Path,
    /// Null: the configuration does not say it.
    on_exit: Option<Effective>,
    /// The root's first; of those that match the last one wins.
    shown: Vec<Shown<'a>>,
    /// Left out.
    mistakes: Vec<Mistake<'a>>,
}

fn shown_of<'a>(resolved: &'a Resolved, tunables: &Tunables) -> Shown<'a> {
    let values = plan::shown(resolved, tunables).into_iter();
    Shown {
        cgroups: None,
        file: None,
        line: None,
        xattr: None,
        policy: &resolved.policy.name,
        rules: resolved.policy.rules.iter().map(|r| r.name()).collect(),
        rules_origin: &resolved.rules_from,
        values: values
            .map(|(option, value, origin)| Effective {
                option: option.name,
                value,
                origin,
            })
            .collect(),
    }
}

/// What cgroups of this host say for themselves.
struct Said {
    xattrs: Xattrs,
    names: Names,
    /// Directories of cgroups of which that could not be read.
    unread: Vec<(PathBuf, io::Error)>,
}

impl Said {
    /// Of all below `root`; none without it.
    fn of(root: Option<&Cgroup>, plan: &Plan, directory: &Directory, sizes: &Sizes) -> Self {
        let mut said = Said {
            xattrs: Xattrs::default(),
            names: Names::new(root.map_or(Path::new("/"), |root| &root.mount)),
            unread: Vec::new(),
        };
        let Some(root) = root else {
            return said;
        };
        let ground = Ground {
            plan,
            directory,
            sizes,
            root,
        };
        // Nothing is loaded.
        let mut place = |_: &Tunables| Ok(0);
        let (xattrs, unread) = (&mut said.xattrs, &mut said.unread);
        let unlisted = cgroup::walk(&root.path, &mut |path, id| match xattr::read(path) {
            Ok(found) => drop(xattrs.take(path, id, found, ground, &mut place)),
            Err(e) => unread.push((path.to_owned(), e)),
        });
        unread.extend(unlisted.into_iter().map(|one| (one.path, one.source)));
        said
    }

    fn names(&self, paths: &[&Path]) -> Vec<String> {
        paths.iter().map(|path| self.names.of_path(path)).collect()
    }

    /// Those in force, with the names of their cgroups.
    fn in_force(&self) -> Vec<(&OfXattr, &Planned, Vec<String>)> {
        let each = self.xattrs.each().into_iter();
        each.filter_map(|(made, paths)| {
            let (planned, _) = made.result.as_ref().ok()?;
            Some((made, planned, self.names(&paths)))
        })
        .collect()
    }

    /// Those left out, one for each cgroup.
    fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (made, paths) in self.xattrs.each() {
            let of = |path: &&Path| Problem {
                place: Place {
                    file: path.to_path_buf(),
                    line: None,
                },
                what: made.text(),
                spoils: Spoils::Override,
            };
            problems.extend(paths.iter().filter(|_| made.result.is_err()).map(of));
        }
        problems.extend(self.unread.iter().map(|(path, e)| Problem {
            place: Place {
                file: path.clone(),
                line: None,
            },
            what: format!("what it, or a cgroup below it, says for itself cannot be read: {e}"),
            spoils: Spoils::Override,
        }));
        problems
    }
}

fn configuration<'a>(
    file: &'a Path,
    plan: &'a Plan,
    said: &'a Said,
    problems: &'a [Problem],
) -> Configuration<'a> {
    let root = shown_of(&plan.root, &plan.tunables);
    let overrides = plan.overrides.iter().map(|one| Shown {
        cgroups: Some(one.patterns.clone()),
        file: Some(&one.place.file),
        line: one.place.line,
        ..shown_of(&one.resolved, &one.tunables)
    });
    let own = said.in_force().into_iter();
    let own = own.map(|(made, planned, names)| Shown {
        cgroups: Some(names),
        xattr: Some(made.xattr.shown()),
        ..shown_of(&planned.resolved, &planned.tunables)
    });
    Configuration {
        file,
        on_exit: plan.on_exit.as_ref().map(|(on_exit, place)| Effective {
            option: ON_EXIT,
            value: on_exit.name().to_owned(),
            origin: place.to_string(),
        }),
        shown: [root].into_iter().chain(overrides).chain(own).collect(),
        mistakes: mistakes(problems),
    }
}

/// `check-config`: each mistake on a line of its own.
///
/// # Errors
/// [`Error::Config`] if there are any.
pub fn check(args: &ConfigArgs) -> Result<()> {
    let file = args.file();
    let problems = match plan(file, &args.directory, &thp::sizes_of_this_machine()) {
        Ok((_, problems)) | Err(problems) => problems,
    };
    let answer = Checked {
        file,
        mistakes: mistakes(&problems),
    };
    print::print(&answer, args.json, |_, out| {
        for problem in &problems {
            writeln!(out, "{problem}")?;
        }
        match problems.is_empty() {
            true => writeln!(out, "{}: no mistake", file.display()),
            false => Ok(()),
        }
    })?;
    match problems.len() {
        0 => Ok(()),
        count => Err(Error::Config {
            file: file.to_owned(),
            what: format!("mistakes: {count}"),
        }),
    }
}

/// One policy: its rules and values, each with its origin.
fn policy_text(resolved: &Resolved, tunables: &Tunables, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "  policy {}", resolved.policy.name)?;
    let rules: Vec<&str> = resolved.policy.rules.iter().map(|r| r.name()).collect();
    let mut rows = Vec::new();
    if !rules.is_empty() {
        rows.push([
            "  rules".to_owned(),
            rules.join(","),
            resolved.rules_from.clone(),
        ]);
    }
    for (option, value, origin) in plan::shown(resolved, tunables) {
        rows.push([format!("  {}", option.name), value, origin]);
    }
    table::print(&rows, &(0..0), out)
}

fn text(plan: &Plan, said: &Said, out: &mut impl Write) -> io::Result<()> {
    if let Some((on_exit, place)) = &plan.on_exit {
        writeln!(out, "{ON_EXIT}  {}  {place}\n", on_exit.name())?;
    }
    writeln!(out, "every cgroup that no override matches")?;
    policy_text(&plan.root, &plan.tunables, out)?;
    for one in &plan.overrides {
        writeln!(out, "\n{} ({})", one.patterns.join(", "), one.place)?;
        policy_text(&one.resolved, &one.tunables, out)?;
    }
    for (made, planned, names) in said.in_force() {
        let (names, value) = (names.join(", "), made.xattr.shown());
        let others = match &made.xattr.others {
            Some(others) => format!("; it may only lower: {others}"),
            None => String::new(),
        };
        writeln!(out, "\n{names} ({XATTR}: {value}{others})")?;
        policy_text(&planned.resolved, &planned.tunables, out)?;
    }
    Ok(())
}

/// `config --show`: the effective values with their origin.
///
/// # Errors
/// [`Error::Config`] if it cannot be used at all.
pub fn show(args: &ConfigArgs) -> Result<()> {
    let (file, sizes) = (args.file(), thp::sizes_of_this_machine());
    let made = plan(file, &args.directory, &sizes);
    let (plan, mut problems) = made.map_err(|problems| unusable(file, &problems))?;
    for problem in &problems {
        eprintln!("mthp_ext: {problem}; left out");
    }
    // A configuration can be looked at on any host.
    let root = Cgroup::open(Path::new(cgroup::DEFAULT_MOUNT)).ok();
    let said = Said::of(root.as_ref(), &plan, &args.directory, &sizes);
    for problem in said.problems() {
        let cgroup = said.names.of_path(&problem.place.file);
        eprintln!("mthp_ext: {cgroup}: {}", problem.what);
        problems.push(problem);
    }
    let answer = configuration(file, &plan, &said, &problems);
    print::print(&answer, args.json, |_, out| text(&plan, &said, out))
}

/// The table of keys, as docs/configuration.md has it.
fn keys_table() -> String {
    let mut text = "| where | key | value | what it is |\n|---|---|---|---|\n".to_owned();
    for (of, place, options) in [
        (Of::Top, "the file", None),
        (
            Of::Policy,
            "`[policies.NAME]`",
            Some("another value than that of `base`"),
        ),
        (
            Of::Override,
            "`[[override]]`",
            Some("another value of that policy, as in `cap = \"64K\"`"),
        ),
    ] {
        for key in of.keys() {
            let (name, value, help) = (key.name, key.value, key.help);
            text += &format!("| {place} | `{name}` | {value} | {help} |\n");
        }
        if let Some(help) = options {
            text += &format!("| {place} | any [option](options.md) | as there | {help} |\n");
        }
    }
    text
}

/// `mthp_ext config --keys`.
///
/// # Errors
/// If it cannot be written.
pub fn keys() -> Result<()> {
    let written = io::stdout().write_all(keys_table().as_bytes());
    written.map_err(|source| Error::Output { source })
}

/// The error for a configuration that cannot be used at all.
pub fn unusable(file: &Path, problems: &[Problem]) -> Error {
    let first = problems.iter().find(|one| one.spoils == Spoils::All);
    Error::Config {
        file: file.to_owned(),
        what: first.map_or_else(String::new, ToString::to_string),
    }
}

#[cfg(test)]
mod tests;

// SPDX-License-Identifier: GPL-2.0-only
//! The configuration's files, `mthp_ext check-config` and `mthp_ext config`.

use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;

use super::cli::{self, ConfigArgs, Directory};
use super::xattrs::{Ground, Made as OfXattr, Xattrs};
use crate::errors::{Error, Result};
use crate::kernel::cgroup::{self, Cgroup, Names};
use crate::kernel::{thp, xattr};
use crate::model::abi::Tunables;
use crate::model::config::{Config, ON_EXIT, Of, Place, Problem, Spoils, XATTR};
use crate::model::orders::Sizes;
use crate::model::plan::{self, Plan, Planned, Resolved};
use crate::model::policy::{ENDING, Policy};
use crate::output::{print, table};

/// Where a configuration is looked for.
pub const FILE: &str = "/etc/mthp_ext/config.toml";

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

/// What a configuration comes to, and what is wrong with parts of it.
type Made = std::result::Result<(Plan, Vec<Problem>), Vec<Problem>>;

/// What a configuration comes to.
///
/// # Errors
/// All that is wrong, if it cannot be used at all.
pub fn plan(file: &Path, directory: &Directory, sizes: &Sizes) -> Made {
    // A part of a sentence, from here on.
    let what = |e: Error| e.to_string().trim_end_matches('.').to_owned();
    let find = |name: &str| cli::policy(name, directory).map_err(what);
    // Where links lead to other files afterwards, some that were read may be of before.
    let mut before = behind(file, directory);
    let mut made = plan::plan(&read(file), &find, sizes);
    for _ in 0..AGAIN {
        let after = behind(file, directory);
        if after == before {
            break;
        }
        before = after;
        made = plan::plan(&read(file), &find, sizes);
    }
    made
}

/// How often files are read again that somebody exchanges meanwhile.
const AGAIN: u32 = 5;

/// The files that a configuration is read from, without links.  kubelet exchanges all files of a
/// volume at once, by one link (`..data`) that all names go through.
fn behind(file: &Path, directory: &Directory) -> Vec<Option<PathBuf>> {
    let policies = directory.names().unwrap_or_default();
    let policies = policies
        .iter()
        .map(|name| Policy::path_in(directory.path(), name));
    [file.to_owned()]
        .into_iter()
        .chain(drop_ins(file).unwrap_or_default())
        .chain(policies)
        .map(|path| std::fs::canonicalize(path).ok())
        .collect()
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
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::model::config::KEYS;
    use crate::model::orders::X86;

    /// A configuration with drop-ins, and no policies of the machine's.
    struct Files {
        dir: tempfile::TempDir,
        directory: Directory,
    }

    impl Files {
        fn new(main: &str, more: &[(&str, &str)]) -> Self {
            let dir = tempfile::tempdir().unwrap();
            std::fs::create_dir(dir.path().join("policies")).unwrap();
            std::fs::create_dir(dir.path().join("config.d")).unwrap();
            std::fs::write(dir.path().join("config.toml"), main).unwrap();
            for (name, text) in more {
                std::fs::write(dir.path().join("config.d").join(name), text).unwrap();
            }
            let directory = Directory {
                policy_dir: Some(dir.path().join("policies")),
            };
            Files { dir, directory }
        }

        fn file(&self) -> PathBuf {
            self.dir.path().join("config.toml")
        }

        fn plan(&self) -> std::result::Result<(Plan, Vec<Problem>), Vec<Problem>> {
            plan(&self.file(), &self.directory, &X86)
        }

        /// "config.toml:3: what", for each mistake.
        fn mistakes(&self) -> Vec<String> {
            let problems = match self.plan() {
                Ok((_, problems)) | Err(problems) => problems,
            };
            let base = format!("{}/", self.dir.path().display());
            problems
                .iter()
                .map(|p| p.to_string().replace(&base, ""))
                .collect()
        }
    }

    /// No cgroup says anything.
    fn nobody(plan: &Plan) -> Said {
        Said::of(None, plan, &Directory::default(), &X86)
    }

    fn name(plan: &Plan, path: &str) -> String {
        plan.matching(path)
            .map_or_else(|| "-".to_owned(), |one| one.resolved.policy.name.clone())
    }

    #[test]
    fn an_empty_configuration_is_the_default_policy() {
        let (plan, problems) = Files::new("", &[]).plan().unwrap();
        assert_eq!(problems, []);
        assert_eq!(plan.root.policy.name, "default");
        assert_eq!(plan.tunables.min_memory, 8 << 20);
        assert_eq!(name(&plan, "system.slice/x.service"), "-");
    }

    #[test]
    fn the_last_override_that_matches_wins() {
        let text = "policy = 'default'
            [[override]]
            cgroups = ['system.slice/redis*.service', '/kubepods.slice/**']
            policy = 'database'
            [[override]]
            cgroups = 'system.slice/redis-cache.service'
            policy = 'off'
            [[override]]
            cgroups = '*.slice'
            cap = '64K'";
        let (plan, problems) = Files::new(text, &[]).plan().unwrap();
        assert_eq!(problems, []);
        for (path, expected) in [
            ("system.slice/redis-7.service", "database"),
            ("system.slice/redis-cache.service", "off"),
            ("system.slice/redis/x.service", "-"),
            ("system.slice/redis-7.service/sub", "-"),
            ("kubepods.slice", "default+cap"),
            ("kubepods.slice/a", "database"),
            ("kubepods.slice/a/b/c", "database"),
            ("a/system.slice", "-"),
            ("", "-"),
        ] {
            assert_eq!(name(&plan, path), expected, "{path}");
        }
        let off = plan.matching("system.slice/redis-cache.service").unwrap();
        assert_eq!((off.tunables.rules, off.tunables.bind.0), (0, 0));
        let capped = plan.matching("kubepods.slice").unwrap();
        assert_eq!(capped.tunables.cap[1], 4);
        assert_eq!(
            crate::model::abi::text(&capped.tunables.policy),
            "default+cap"
        );
    }

    #[test]
    fn drop_ins_come_later_in_the_order_of_their_names() {
        let files = Files::new(
            "policy = 'reactive'\n[policies.web]\nbase = 'default'\nmin-memory = '1M'\n",
            &[
                (
                    "20-b.toml",
                    "policy = 'headroom'\n[[override]]\ncgroups = 'x'\npolicy = 'off'\n",
                ),
                (
                    "10-a.toml",
                    "policy = 'database'\n[policies.web]\nbase = 'default'\nmin-memory = '2M'\n\
                     [[override]]\ncgroups = 'x'\npolicy = 'web'\n[[override]]\ncgroups = 'y'\npolicy = 'web'\n",
                ),
                ("30-c.bak", "no configuration"),
            ],
        );
        let (plan, problems) = files.plan().unwrap();
        assert_eq!(problems, []);
        assert_eq!(plan.root.policy.name, "headroom");
        assert_eq!(name(&plan, "x"), "off");
        assert_eq!(plan.matching("y").unwrap().tunables.min_memory, 2 << 20);
    }

    #[test]
    fn each_value_has_its_origin() {
        let text = "policy = 'web'
[policies.web]
base = 'small-services'
rules = ['pressure', 'small', 'sparse', 'room', 'cap']
sparse-waste = '8M'
[[override]]
cgroups = 'db'
policy = 'web'
cap = '64K'
";
        let files = Files::new(text, &[]);
        let (plan, problems) = files.plan().unwrap();
        assert_eq!(problems, []);
        let mut out = Vec::new();
        super::text(&plan, &nobody(&plan), &mut out).unwrap();
        let out = String::from_utf8(out).unwrap();
        let base = format!("{}/", files.dir.path().display());
        let out = out.replace(&base, "");
        let line = |text: &str, name: &str| {
            let line = text
                .lines()
                .find(|line| line.trim_start().starts_with(name));
            let words: Vec<&str> = line.unwrap().split_whitespace().collect();
            words.join(" ")
        };
        let (root, db) = out.split_once("\ndb (config.toml:").unwrap();
        assert_eq!(line(root, "threshold"), "threshold 100ms built in");
        assert_eq!(
            line(root, "sparse-waste"),
            "sparse-waste 8M policy web, config.toml:5"
        );
        assert_eq!(
            line(root, "min-memory"),
            "min-memory 64M policy small-services (built in)"
        );
        assert!(
            line(root, "rules").ends_with(" policy web, config.toml:4"),
            "{root}"
        );
        assert_eq!(line(db, "cap"), "cap 64K override, config.toml:9");
        assert_eq!(
            line(db, "sparse-waste"),
            "sparse-waste 8M policy web, config.toml:5"
        );
    }

    #[test]
    fn json_says_the_same() {
        let text = "policy = 'headroom'\n[[override]]\ncgroups = 'a'\ncap = '64K'\n\
                    [[override]]\ncgroups = 'b'\npolicy = 'nobody'\n";
        let files = Files::new(text, &[]);
        let (file, (plan, problems)) = (files.file(), files.plan().unwrap());
        let said = nobody(&plan);
        let json = serde_json::to_value(configuration(&file, &plan, &said, &problems)).unwrap();
        assert_eq!(print::undocumented(&json), [""; 0]);
        let [root, a] = json["shown"].as_array().unwrap().as_slice() else {
            panic!("{json}");
        };
        assert_eq!(root["policy"], "headroom");
        assert!(
            root["cgroups"].is_null() && root["line"].is_null(),
            "{root}"
        );
        assert_eq!((&a["cgroups"][0], &a["line"]), (&"a".into(), &2.into()));
        let values = a["values"].as_array().unwrap();
        let cap = values.iter().find(|one| one["option"] == "cap").unwrap();
        assert_eq!(cap["value"], "64K");
        let origin = format!("override, {}:4", file.display());
        assert_eq!(cap["origin"], origin.as_str());

        let checked = Checked {
            file: &file,
            mistakes: mistakes(&problems),
        };
        let checked = serde_json::to_value(checked).unwrap();
        assert_eq!(print::undocumented(&checked), [""; 0]);
        let [one] = checked["mistakes"].as_array().unwrap().as_slice() else {
            panic!("{checked}");
        };
        assert_eq!(json["mistakes"][0], *one);
        assert_eq!(
            (&one["line"], &one["spoils"]),
            (&5.into(), &"override".into())
        );
        assert!(one["what"].as_str().unwrap().contains("'nobody'"), "{one}");
    }

    #[test]
    fn the_end_that_is_configured_is_shown_with_its_origin() {
        let drop_in = ("1.toml", "\non-exit = 'hand-over'\n");
        let files = Files::new("on-exit = 'keep'\n", &[drop_in]);
        let (file, (plan, problems)) = (files.file(), files.plan().unwrap());
        let said = nobody(&plan);
        let mut out = Vec::new();
        text(&plan, &said, &mut out).unwrap();
        let out = String::from_utf8(out).unwrap();
        let place = format!("{}/config.d/1.toml:2", files.dir.path().display());
        assert!(
            out.starts_with(&format!("on-exit  hand-over  {place}\n")),
            "{out}"
        );
        let json = serde_json::to_value(configuration(&file, &plan, &said, &problems)).unwrap();
        assert_eq!(print::undocumented(&json), [""; 0]);
        assert_eq!(
            (&json["on_exit"]["value"], &json["on_exit"]["origin"]),
            (&"hand-over".into(), &place.as_str().into())
        );
        for wrong in ["'kept'", "1"] {
            let mistakes = Files::new(&format!("\non-exit = {wrong}\n"), &[]).mistakes();
            assert_eq!(
                mistakes,
                ["config.toml:2: on-exit must be one of \"detach\", \"keep\", \"hand-over\""]
            );
        }
    }

    #[test]
    fn the_page_has_the_table_of_keys() {
        const MARK: &str = "<!-- Made by `mthp_ext config --keys`. -->\n";
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/configuration.md");
        let page = std::fs::read_to_string(file).unwrap();
        let (_, after) = page.split_once(MARK).expect(MARK);
        let (there, _) = after.split_once("\n\n").unwrap();
        let table = keys_table();
        assert!(
            there == table.trim_end(),
            "put the output of `mthp_ext config --keys` into docs/configuration.md:\n{table}"
        );
    }

    /// What the table names is read where it says so, and not elsewhere.
    #[test]
    fn each_key_of_the_table_is_one() {
        let values = [
            ("policy", "'database'"),
            (ON_EXIT, "'keep'"),
            ("about", "'for a test'"),
            ("rules", "['room']"),
            ("base", "'default'"),
            ("cgroups", "'a/*'"),
        ];
        for key in &KEYS {
            let Some(&(name, value)) = values.iter().find(|(name, _)| *name == key.name) else {
                // Tables, which all of these texts have.
                assert!(["policies", "override"].contains(&key.name), "{}", key.name);
                continue;
            };
            for of in [Of::Top, Of::Policy, Of::Override] {
                let known = of.keys().any(|key| key.name == name);
                let line = |is: Of| match is == of {
                    true => format!("{name} = {value}\n"),
                    false => String::new(),
                };
                let rest = |is: Of, key: &str, text: &'static str| match (is == of, key == name) {
                    (true, true) => "",
                    _ => text,
                };
                let text = format!(
                    "{}[policies.own]\n{}{}[[override]]\n{}{}{}",
                    line(Of::Top),
                    line(Of::Policy),
                    rest(Of::Policy, "base", "base = 'default'\n"),
                    line(Of::Override),
                    rest(Of::Override, "cgroups", "cgroups = 'b'\n"),
                    rest(Of::Override, "policy", "policy = 'own'\n"),
                );
                let mistakes = Files::new(&text, &[]).mistakes();
                assert_eq!(mistakes.is_empty(), known, "{text}{mistakes:?}");
            }
        }
    }

    /// Each with file and line, all of them at once; what is right is used.
    #[test]
    fn one_bad_override_does_not_stop_the_rest() {
        let text = "[policies.bad]
base = 'default'
magic = 1
window = '1x'
[[override]]
cgroups = 'a['
policy = 'off'
[[override]]
cgroups = 'b'
policy = 'nobody'
[[override]]
cgroups = 'c'
policy = 'bad'
[[override]]
cgroups = 'd'
policy = 'off'
cap = '64K'
[[override]]
cgroups = 'e'
window = '2s'
[[override]]
policy = 'off'
[[override]]
cgroups = 'f'
[[override]]
cgroups = 'g'
cap = '5K'
[[override]]
cgroups = 'good'
policy = 'database'
";
        let files = Files::new(
            text,
            &[("a.toml", "[[override]]\ncgroups = 'h'\nrules = ['cap']\n")],
        );
        let (plan, _) = files.plan().unwrap();
        assert_eq!(plan.overrides.len(), 1);
        assert_eq!(name(&plan, "good"), "database");
        let said = files.mistakes();
        for (place, part) in [
            ("config.toml:3: ", "'magic' is no option"),
            ("config.toml:4: ", "window has an unknown unit"),
            ("config.toml:6: ", "the pattern 'a['"),
            ("config.toml:8: ", "there is no policy 'nobody'"),
            (
                "config.toml:11: ",
                "policy bad has mistakes (config.toml:1)",
            ),
            (
                "config.toml:17: ",
                "cap has no effect where the policy is \"off\"",
            ),
            ("config.toml:20: ", "window is 1s for all cgroups"),
            ("config.toml:21: ", "needs cgroups"),
            ("config.toml:23: ", "needs a policy"),
            ("config.toml:27: ", "cap has the size '5K'"),
            ("config.d/a.toml:3: ", "an override has no rules"),
        ] {
            let found = said
                .iter()
                .any(|s| s.starts_with(place) && s.contains(part));
            assert!(found, "{place}{part}: {said:#?}");
        }
        assert_eq!(said.len(), 11, "{said:#?}");
    }

    #[test]
    fn a_file_that_cannot_be_read_has_its_remedy() {
        let files = Files::new("", &[("a.toml", "")]);
        let drop_in = drop_in_directory(&files.file()).join("a.toml");
        let says = |line: &str, part: &str| {
            let said = files.mistakes();
            assert_eq!(said.len(), 1, "{said:?}");
            let place = format!("config.d/a.toml{line}: cannot be read: ");
            assert!(
                said[0].starts_with(&place) && said[0].contains(part),
                "{said:?}"
            );
        };
        std::fs::write(&drop_in, b"# x\n# \xff\n").unwrap();
        says(":2", "UTF-8");
        std::fs::remove_file(&drop_in).unwrap();
        std::os::unix::fs::symlink("/nowhere", &drop_in).unwrap();
        says("", "a link to what is not there");
        std::fs::remove_file(&drop_in).unwrap();
        std::fs::create_dir(&drop_in).unwrap();
        says("", "another ending");
    }

    /// A volume as kubelet fills it: files are behind one link, which it exchanges at once.
    struct Volume {
        dir: tempfile::TempDir,
        version: u32,
    }

    impl Volume {
        /// With the name of a policy in one file, and the policy in another.
        fn new(policy: &str) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let mut volume = Volume { dir, version: 0 };
            volume.put(policy);
            for name in ["config.toml", "config.d", "policies"] {
                symlink(Path::new("..data").join(name), volume.at(name)).unwrap();
            }
            volume
        }

        fn at(&self, name: &str) -> PathBuf {
            self.dir.path().join(name)
        }

        fn put(&mut self, policy: &str) {
            self.version += 1;
            let own = format!("..2026_11_27_01_02_03.{}", self.version);
            let before = std::fs::canonicalize(self.at("..data")).ok();
            for name in ["config.d", "policies"] {
                std::fs::create_dir_all(self.at(&own).join(name)).unwrap();
            }
            let write = |name: &str, text: &str| {
                std::fs::write(self.at(&own).join(name), text).unwrap();
            };
            write("config.toml", &format!("policy = '{policy}'\n"));
            write("config.d/b.toml", "");
            let of = format!("[policies.{policy}]\nrules = ['room']\n");
            write("config.d/z.toml", &of);
            write("policies/own.toml", "about = 'own'\nrules = ['room']\n");
            symlink(&own, self.at("..data_tmp")).unwrap();
            std::fs::rename(self.at("..data_tmp"), self.at("..data")).unwrap();
            if let Some(before) = before {
                std::fs::remove_dir_all(before).unwrap();
            }
        }

        fn plan(&self) -> Made {
            let directory = Directory {
                policy_dir: Some(self.at("policies")),
            };
            plan(&self.at("config.toml"), &directory, &X86)
        }

        /// The root's policy, and whence its rules are.
        fn root(&self) -> (String, String) {
            let (plan, problems) = self.plan().unwrap();
            assert_eq!(problems.len(), 0);
            (plan.root.policy.name, plan.root.rules_from)
        }
    }

    #[test]
    fn a_volume_of_kubelet_is_read_through_its_links() {
        let mut volume = Volume::new("one");
        let drop_in = volume.at("config.d/z.toml").display().to_string();
        for policy in ["one", "two"] {
            if policy == "two" {
                volume.put(policy);
            }
            let (name, from) = volume.root();
            // By the names that the user knows, not by those of kubelet.
            assert_eq!(
                (name.as_str(), from),
                (policy, format!("policy {policy}, {drop_in}:2")),
                "{policy}"
            );
        }
        volume.put("own");
        std::fs::write(volume.at("config.d/z.toml"), "").unwrap();
        let (plan, _) = volume.plan().unwrap();
        assert_eq!(plan.root.policy.file, Some(volume.at("policies/own.toml")));
        // A volume in the place of the directory has kubelet's own entries beside the files.
        std::fs::remove_file(volume.at("config.d")).unwrap();
        std::fs::create_dir_all(volume.at("config.d/..2026_11_27_01_02_03.1")).unwrap();
        std::fs::write(
            volume.at("config.d/..2026_11_27_01_02_03.1/a.toml"),
            "policy = 'headroom'\n",
        )
        .unwrap();
        symlink("..2026_11_27_01_02_03.1", volume.at("config.d/..data")).unwrap();
        symlink("..data/a.toml", volume.at("config.d/a.toml")).unwrap();
        assert_eq!(volume.root().0, "headroom");
    }

    /// Files of before and after go together in no configuration.
    #[test]
    fn what_kubelet_exchanges_meanwhile_is_read_again() {
        let mut volume = Volume::new("one");
        // Its reader waits, between two other files, for what somebody writes.
        let slow = volume.at("config.d/b.toml");
        std::fs::remove_file(&slow).unwrap();
        nix::unistd::mkfifo(&slow, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let at = volume.dir.path().to_owned();
        let read = std::thread::spawn(move || {
            let directory = Directory {
                policy_dir: Some(at.join("policies")),
            };
            plan(&at.join("config.toml"), &directory, &X86)
        });
        let mut file = std::fs::File::options().write(true).open(&slow).unwrap();
        volume.put("two");
        file.write_all(b"# the end\n").unwrap();
        drop(file);
        let (plan, problems) = read.join().unwrap().unwrap();
        assert_eq!(plan.root.policy.name, "two");
        assert_eq!(problems.len(), 0);
    }

    #[test]
    fn more_policies_than_there_are_places_are_left_out() {
        let one = |i| format!("[[override]]\ncgroups = 'g{i}'\ncap = '64K'\nroom-factor = {i}\n");
        let text = |n| (1..=n).map(one).collect::<String>();
        assert_eq!(Files::new(&text(63), &[]).mistakes(), [""; 0]);
        // Those that come last; one of a policy that has its place is none of them.
        let again = "[[override]]\ncgroups = 'again'\ncap = '64K'\nroom-factor = 1\n";
        let first = "[[override]]\ncgroups = 'g*'\ncap = '64K'\nroom-factor = 1\n";
        let files = Files::new(&[first, &text(65), again].concat(), &[]);
        let (plan, problems) = files.plan().unwrap();
        let said = files.mistakes();
        assert_eq!(said.len(), 2, "{said:?}");
        for (said, place) in said.iter().zip(["config.toml:257: ", "config.toml:261: "]) {
            assert!(
                said.starts_with(place) && said.contains("64 at a time"),
                "{said}"
            );
        }
        assert!(problems.iter().all(|one| one.spoils == Spoils::Override));
        assert_eq!(plan.overrides.len(), 65);
        // The next best match, or the root's.
        for (path, index) in [("g63", 63), ("g64", 0), ("again", 64)] {
            assert_eq!(plan.index_of(path), Some(index), "{path}");
        }
        assert_eq!(plan.index_of("other"), None);
    }

    #[test]
    fn what_spoils_the_whole_is_refused() {
        for (text, place) in [
            ("policy = 1", "config.toml:1: policy must be a text"),
            ("\npolicy = 'nobody'", "config.toml:2: there is no policy"),
            ("magic = 1", "config.toml:1: 'magic' is no key"),
            ("policy = ", "config.toml:1: this is not TOML: "),
            (
                "policy = 'a'\n[policies.a]\nbase = 'a2'\n[policies.a2]\nbase = 'a'",
                "config.toml:",
            ),
            (
                "policy = 'a'\n[policies.a]\nthreshold = '2s'\nbase = 'default'",
                "config.toml:3: threshold",
            ),
        ] {
            let files = Files::new(text, &[]);
            let problems = files.plan().map(|_| ()).unwrap_err();
            let said = files.mistakes();
            assert!(said.iter().any(|s| s.starts_with(place)), "{said:?}");
            let error = unusable(&files.file(), &problems);
            assert_eq!(error.code(), 2);
            assert!(error.to_string().contains("config.toml:"), "{error}");
        }
        let missing = Path::new("/proc/none/config.toml");
        let (_dir, directory) = (tempfile::tempdir().unwrap(), Directory::default());
        assert!(plan(missing, &directory, &X86).is_err());
    }

    /// One scan serves all, so all have the window of the root's.
    #[test]
    fn the_window_is_that_of_the_root() {
        let text = "policy = 'slow'\n[policies.slow]\nbase = 'default'\nwindow = '4s'\n\
                    [[override]]\ncgroups = 'a'\npolicy = 'reactive'\n";
        let (plan, problems) = Files::new(text, &[]).plan().unwrap();
        assert_eq!(problems, []);
        assert_eq!(
            plan.matching("a").unwrap().tunables.window_ns,
            4_000_000_000
        );
    }
}

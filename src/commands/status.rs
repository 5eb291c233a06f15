// SPDX-License-Identifier: GPL-2.0-only
//! `mthp_ext status`: what is attached where, and what each cgroup may use now.
//!
//! Everything comes from the kernel: its list of links, the programs behind them, the cgroup
//! files.  The attached policy's own program says what it decides for a cgroup, and why; the
//! process that attached it is not asked: it may be another version, or gone.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use super::args::StatusArgs;
use crate::errors::{Error, Result};
use crate::kernel::attached;
use crate::kernel::carrier::Carrier;
use crate::kernel::cgroup::{self, Cgroup, Names};
use crate::kernel::neighbours;
use crate::kernel::thp::{self, Thp};
use crate::output::cgroups::{self, COLUMNS, CgroupLine, NUMBERS};
use crate::output::policies::PolicyLine;
use crate::output::{print, settings, table};

/// The whole answer.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Report {
    /// transparent_hugepage/enabled, which the policies narrow.
    thp: Option<String>,
    /// The same in words.
    #[serde(skip)]
    setting: String,
    policies: Vec<PolicyLine>,
    neighbours: neighbours::Host,
    cgroups: Vec<CgroupLine>,
    /// In words, where cgroups may be missing.
    gaps: Vec<String>,
}

fn text(report: &Report, as_tree: bool, out: &mut impl Write) -> io::Result<()> {
    let setting = &report.setting;
    if report.policies.is_empty() {
        return writeln!(
            out,
            "no policy is attached; transparent_hugepage/enabled applies: {setting}"
        );
    }
    for p in &report.policies {
        writeln!(out, "{}", p.attached_text())?;
        if let Some(life) = p.life_text() {
            writeln!(out, "  {life}")?;
        }
        match (&p.tunables, p.unreadable_text()) {
            (Some(tunables), _) => settings::text(tunables, out)?,
            (None, why) => writeln!(out, "  {}", why.unwrap_or_default())?,
        }
    }
    writeln!(out, "\ntransparent_hugepage/enabled: {setting}")?;
    writeln!(out, "{}\n", report.neighbours.text())?;
    let mut rows = vec![COLUMNS.map(str::to_owned)];
    rows.extend(report.cgroups.iter().map(CgroupLine::cells));
    if as_tree {
        for (row, name) in rows.iter_mut().skip(1).zip(tree(&report.cgroups)) {
            row[0] = name;
        }
    }
    table::print(&rows, &NUMBERS, out)?;
    for gap in &report.gaps {
        writeln!(out, "not listed: {gap}")?;
    }
    Ok(())
}

/// What the kernel would not say of one policy or cgroup, after all the rest is printed.
fn incomplete(report: &Report) -> Result<()> {
    let policies = report.policies.iter();
    let policies =
        policies.filter_map(|p| Some(format!("policy {}: {}", p.policy, p.error.as_ref()?)));
    let cgroups = report.cgroups.iter().filter(|cgroup| cgroup.failed);
    let cgroups = cgroups.map(|c| format!("{}: {}", c.cgroup, c.unreadable.join("; ")));
    let mut all = policies.chain(cgroups).chain(report.gaps.iter().cloned());
    let Some(first) = all.next() else {
        return Ok(());
    };
    let others = match all.count() {
        0 => String::new(),
        count => format!(", and {count} more"),
    };
    Err(Error::gaps(&format!("{first}{others}")))
}

/// The names of the cgroups, indented by depth and without the path of the nearest one above that
/// is shown.
fn tree(cgroups: &[CgroupLine]) -> Vec<String> {
    let mut above: Vec<&str> = Vec::new();
    let mut names = Vec::new();
    for line in cgroups {
        let rest = |up: &str| {
            line.cgroup
                .strip_prefix(up.trim_end_matches('/'))?
                .strip_prefix('/')
        };
        while above.last().is_some_and(|up| rest(up).is_none()) {
            above.pop();
        }
        let name = above.last().and_then(|up| rest(up)).unwrap_or(&line.cgroup);
        names.push(format!("{:1$}{name}", "", 2 * above.len()));
        above.push(&line.cgroup);
    }
    names
}

/// What the kernel says now.
fn ask() -> Result<Report> {
    let root = Cgroup::open(Path::new(cgroup::DEFAULT_MOUNT))?;
    let carrier = Carrier::probe()?;
    let policies = attached::attached(&carrier)?;
    let names = Names::new(&root.mount);
    let bound = cgroups::bound(&policies, &names, &thp::sizes_of_this_machine());
    let thp = Thp::of_this_machine();
    Ok(Report {
        setting: thp.word(),
        thp: thp.enabled,
        policies: policies.iter().map(|p| PolicyLine::of(p, &names)).collect(),
        neighbours: neighbours::Host::read(),
        cgroups: bound.lines,
        gaps: bound.gaps,
    })
}

/// The command.
///
/// # Errors
/// Without BTF, hook, privilege, or cgroup v2; after the answer, if that has gaps.
pub fn main(args: &StatusArgs) -> Result<()> {
    let show = |report: &Report, before: &str| {
        print::print(report, args.json, |report, out| {
            write!(out, "{before}")?;
            text(report, args.tree, out)
        })
    };
    let Some(interval) = args.watch else {
        let report = ask()?;
        show(&report, "")?;
        return incomplete(&report);
    };
    // From the top, with what was there cleared; elsewhere one answer after the other.
    let (first, next) = match io::stdout().is_terminal() {
        true => ("\x1b[H\x1b[2J", "\x1b[H\x1b[2J"),
        false => ("", "\n"),
    };
    let mut before = first;
    loop {
        show(&ask()?, before)?;
        before = next;
        std::thread::sleep(interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::abi::RuleNumber;
    use crate::model::orders::X86;
    use crate::output::cgroups::tests::verdict;
    use crate::output::policies::tests::line;

    /// One errno hides nothing: all is printed, and the end is that of a failure.
    #[test]
    fn what_the_kernel_does_not_say_leaves_a_gap_that_shows() {
        let dir = tempfile::tempdir().unwrap();
        let mut line = CgroupLine::new(dir.path(), &Names::new(dir.path()));
        line.add(&verdict(0xff, 0xff, RuleNumber::MTHP_ROOM), &X86);
        let mut report = report(vec![line]);
        assert!(incomplete(&report).is_ok());
        report.cgroups[0].add_unreadable("mine", Some("Cannot allocate memory"), &X86);
        let out = printed(&report);
        assert!(out.contains("<=512K-max"), "{out}");
        let why = "and policy mine: Cannot allocate memory, unreadable";
        assert!(out.contains(why), "{out}");
        let error = incomplete(&report).unwrap_err();
        assert_eq!(error.code(), 1);
        assert!(
            error
                .to_string()
                .contains(": mine: Cannot allocate memory: the rest"),
            "{error}"
        );
        report.cgroups.clear();
        report.gaps.push("below /a: Permission denied".to_owned());
        let out = printed(&report);
        assert!(out.ends_with("\nnot listed: below /a: Permission denied\n"));
        let error = incomplete(&report).unwrap_err().to_string();
        assert!(
            error.contains("below /a: Permission denied: the rest"),
            "{error}"
        );
        report.gaps.clear();
        report.policies[0].error = Some("Too many open files".to_owned());
        let out = printed(&report);
        assert!(out.contains("cannot be read: Too many open files"), "{out}");
        assert_eq!(incomplete(&report).unwrap_err().code(), 1);
    }

    #[test]
    fn every_key_is_on_the_page() {
        let dir = tempfile::tempdir().unwrap();
        let mut line = CgroupLine::new(dir.path(), &Names::new(dir.path()));
        line.add(&verdict(0xff, 0xff, RuleNumber::MTHP_ROOM), &X86);
        assert!(line.level.is_some());
        let answer = serde_json::to_value(report(vec![line])).unwrap();
        assert_eq!(print::undocumented(&answer), [""; 0]);
    }

    /// A host whose `default` is a file of its own is told from the others.
    #[test]
    fn what_is_the_users_own_shows() {
        let mut report = report(Vec::new());
        let policy = &mut report.policies[0];
        assert_eq!(policy.title(), "policy default");
        (policy.own_file, policy.own_object) = (Some(true), Some(false));
        assert_eq!(policy.title(), "policy default (own file)");
        policy.own_object = Some(true);
        assert_eq!(policy.title(), "policy default (own file and object)");
        let first = "policy default (own file and object) attached to / (cgroup 1, link 2)\n";
        assert!(printed(&report).starts_with(first));
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["policies"][0]["own_file"], true);
    }

    #[test]
    fn the_table_is_aligned() {
        let dir = tempfile::tempdir().unwrap();
        let mut line = CgroupLine::new(dir.path(), &Names::new(dir.path()));
        line.add(&verdict(0xff, 0xff, RuleNumber::MTHP_ROOM), &X86);
        let out = printed(&report(vec![line]));
        let lines: Vec<&str> = out.lines().collect();
        let [first, second, .., head, row] = lines[..] else {
            panic!("{out}");
        };
        assert_eq!(first, "policy default attached to / (cgroup 1, link 2)");
        assert!(second.contains("another version"), "{out}");
        assert!(
            out.contains("\ntransparent_hugepage/enabled: always\n"),
            "{out}"
        );
        assert_eq!(head.find("WHY"), row.rfind("room: 1M"));
        assert!(row.starts_with("/       512K-max  "), "{out}");
        assert_eq!(head.find("NARROWED").map(|at| at + 8), row.find("  room: "));
    }

    #[test]
    fn a_tree_leaves_out_what_stands_above() {
        let dir = tempfile::tempdir().unwrap();
        let names = Names::new(dir.path());
        let line = |path: &str| CgroupLine::new(&dir.path().join(path), &names);
        let lines = ["", "a", "a/b", "a/b/c", "ab", "d/e", "d/e/f"].map(line);
        assert_eq!(
            tree(&lines),
            ["/", "  a", "    b", "      c", "  ab", "  d/e", "    f"]
        );
        assert_eq!(tree(&lines[2..6]), ["/a/b", "  c", "/ab", "/d/e"]);
    }

    #[test]
    fn without_a_policy_the_setting_is_named() {
        let report = Report {
            thp: Some("madvise".to_owned()),
            setting: "madvise".to_owned(),
            policies: Vec::new(),
            neighbours: neighbours::Host::read(),
            cgroups: Vec::new(),
            gaps: Vec::new(),
        };
        assert_eq!(
            printed(&report),
            "no policy is attached; transparent_hugepage/enabled applies: madvise\n"
        );
    }

    fn report(cgroups: Vec<CgroupLine>) -> Report {
        Report {
            thp: Some("always".to_owned()),
            setting: "always".to_owned(),
            policies: vec![line()],
            neighbours: neighbours::Host::read(),
            cgroups,
            gaps: Vec::new(),
        }
    }

    fn printed(report: &Report) -> String {
        let mut out = Vec::new();
        text(report, false, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }
}

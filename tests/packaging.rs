// SPDX-License-Identifier: GPL-2.0-only
//! What `make install` puts where, and what systemd says of the unit.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed step fails the test"
)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use mthp_ext::commands::config;
use mthp_ext::commands::lookup::Directory;
use mthp_ext::errors::EXIT_CODES;
use mthp_ext::model::orders::Sizes;

const REPO: &str = env!("CARGO_MANIFEST_DIR");
const PROGRAM: &str = env!("CARGO_BIN_EXE_mthp_ext");
const UNIT: &str = include_str!("../packaging/systemd/mthp_ext.service");

const CONFIG: &str = include_str!("../packaging/etc/config.toml");

/// What systemd may find open at most, of 10 (`systemd-analyze security`): "OK" ends at 4.  The
/// figure of docs/operations.md, and what another version of systemd adds to it.
const EXPOSURE: f64 = 1.5;

fn install(variables: &[String]) -> Output {
    let mut make = Command::new("make");
    make.args(["-C", REPO, "install"]).args(variables);
    make.output().expect("make")
}

/// All files below a directory, as paths in it, with their modes.
fn files(directory: &Path, below: &Path) -> Vec<(PathBuf, u32)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, below));
        } else {
            let mode = path.metadata().unwrap().permissions().mode() & 0o777;
            found.push((path.strip_prefix(below).unwrap().to_owned(), mode));
        }
    }
    found.sort();
    found
}

#[test]
fn install_puts_everything_below_the_prefix() {
    let scratch = tempfile::tempdir().unwrap();
    let to = scratch.path();
    let set = |prefix: &str| {
        vec![
            format!("DESTDIR={}", to.display()),
            format!("PREFIX={prefix}"),
            format!("PROGRAM={PROGRAM}"),
        ]
    };
    let out = install(&set("/opt/here"));
    assert!(out.status.success(), "{out:?}");
    let mut expected = vec![
        ("lib/systemd/system/mthp_ext.service".to_owned(), 0o644),
        ("lib/systemd/system/mthp_ext@.service".to_owned(), 0o644),
        ("sbin/mthp_ext".to_owned(), 0o755),
        (
            "share/bash-completion/completions/mthp_ext".to_owned(),
            0o644,
        ),
        (
            "share/fish/vendor_completions.d/mthp_ext.fish".to_owned(),
            0o644,
        ),
        ("share/zsh/site-functions/_mthp_ext".to_owned(), 0o644),
    ];
    for (directory, below) in [
        ("policies", ""),
        ("packaging/ansible", "packaging"),
        ("packaging/grafana", "packaging"),
        ("packaging/kubernetes", "packaging"),
        ("packaging/prometheus", "packaging"),
    ] {
        let repo = Path::new(REPO);
        for (name, _) in files(&repo.join(directory), &repo.join(below)) {
            expected.push((format!("share/doc/mthp_ext/{}", name.display()), 0o644));
        }
    }
    expected.sort();
    let prefix = to.join("opt/here");
    let mut found = files(&prefix, &prefix);
    let manual = |(path, _): &(PathBuf, u32)| path.starts_with("share/man/man8");
    let pages: Vec<_> = found.iter().filter(|one| manual(one)).cloned().collect();
    assert!(pages.len() > 20, "{pages:?}");
    found.retain(|one| !manual(one));
    let found: Vec<(String, u32)> = found
        .into_iter()
        .map(|(path, mode)| (path.to_str().unwrap().to_owned(), mode))
        .collect();
    assert_eq!(found, expected);
    let unit = fs::read_to_string(prefix.join("lib/systemd/system/mthp_ext.service")).unwrap();
    assert!(unit.contains("\nExecStart=/opt/here/sbin/mthp_ext run --on-exit hand-over\n"));
    assert!(!unit.contains("/usr/local"), "{unit}");
    let of_slice = prefix.join("lib/systemd/system/mthp_ext@.service");
    let of_slice = fs::read_to_string(of_slice).unwrap();
    let start = "run --on-exit hand-over --root /sys/fs/cgroup/%i.slice\n";
    assert!(of_slice.contains(start), "{of_slice}");
    // Each unit asks its own daemon, and not whichever there is.
    for unit in [&unit, &of_slice] {
        let reload = "\nExecReload=/opt/here/sbin/mthp_ext reload --pid $MAINPID\n";
        assert!(unit.contains(reload), "{unit}");
    }
    // All else is the same, so that there is one sandbox.
    let same = |line: &&str| of_slice.lines().any(|other| other == *line);
    let count = unit.lines().filter(same).count();
    assert_eq!(count + 2, unit.lines().count(), "{of_slice}");
    let bash = prefix.join("share/bash-completion/completions/mthp_ext");
    assert!(fs::read_to_string(bash).unwrap().contains("mthp_ext"));

    let config = to.join("etc/mthp_ext/config.toml");
    assert_eq!(fs::read_to_string(&config).unwrap(), CONFIG);
    // Somebody may have written it.
    fs::write(&config, "policy = 'off'\n").unwrap();
    assert!(install(&set("/opt/here")).status.success());
    assert_eq!(fs::read_to_string(&config).unwrap(), "policy = 'off'\n");

    let relative = install(&set("opt"));
    assert_eq!(relative.status.code(), Some(2), "{relative:?}");
    let nothing = install(&["PROGRAM=/none".to_owned()]);
    let said = String::from_utf8_lossy(&nothing.stderr).into_owned();
    assert!(
        !nothing.status.success() && said.contains("make build"),
        "{said}"
    );
}

/// A configuration with the `#` of its examples taken away.
fn with_examples(config: &str) -> String {
    let line = |line| match str::strip_prefix(line, "#") {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_lowercase() || c == '[') => rest,
        _ => line,
    };
    config.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Both drivers of kubelet, the classes of its pods, and the scopes of both runtimes.
#[test]
fn pods_have_the_policy_of_their_class_by_path_alone() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = Directory {
        policy_dir: Some(scratch.path().to_owned()),
    };
    let sizes = Sizes {
        orders: 0x3fc,
        off: 0,
        page_shift: 12,
    };
    let text = include_str!("../packaging/kubernetes/config.toml");
    let plans = [text.to_owned(), with_examples(text)].map(|text| {
        let file = scratch.path().join("config.toml");
        fs::write(&file, text).unwrap();
        let (plan, problems) = config::plan(&file, &directory, &sizes).unwrap();
        assert_eq!(problems, []);
        plan
    });
    let tree = include_str!("kubelet-trees.txt");
    let lines = tree
        .lines()
        .filter(|l| !l.is_empty() && !l.starts_with('#'));
    let mut seen = 0;
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [as_it_is, with, path] = words[..] else {
            panic!("{line}");
        };
        for (plan, wanted) in plans.iter().zip([as_it_is, with]) {
            let nearest = Path::new(path).ancestors().find_map(|at| plan.matching(at));
            let found = nearest.map_or(&plan.root, |one| &one.resolved);
            assert_eq!(found.policy.name, wanted, "{path}");
        }
        seen += 1;
    }
    assert!(seen > 20, "{seen}");
}

/// The configuration that is installed changes nothing, and what it shows is right.
#[test]
fn the_configuration_is_comments_that_would_do() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("config.toml");
    let shown = |text: &str| {
        fs::write(&file, text).unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(["config", "--show", "--json", "--policy-dir"]);
        let out = command.arg(scratch.path()).arg(&file).output().unwrap();
        assert!(out.status.success(), "{out:?}");
        serde_json::from_slice::<serde_json::Value>(&out.stdout).unwrap()
    };
    assert_eq!(shown(CONFIG)["shown"], shown("")["shown"]);
    let all = shown(&with_examples(CONFIG));
    assert_eq!(all["mistakes"].as_array().map(Vec::len), Some(0), "{all}");
    assert_eq!(all["shown"].as_array().map(Vec::len), Some(4), "{all}");
}

/// The values of a setting of the unit, word by word.
fn words(setting: &str) -> Vec<&'static str> {
    let lines = UNIT.lines().filter_map(|line| line.strip_prefix(setting));
    lines.flat_map(str::split_whitespace).collect()
}

/// A restart helps where time does: what a start would find again is listed, by the exit codes.
#[test]
fn what_a_restart_cannot_cure_is_not_restarted() {
    let codes = words("RestartPreventExitStatus=");
    // 1: a system call; 9: the cgroup was removed; 12: the scan; 14: the output; 17 to 20: not of `run`.
    let other = ["1", "9", "12", "14", "17", "18", "19", "20"];
    let all = EXIT_CODES
        .lines()
        .filter_map(|l| l.split_whitespace().next());
    for code in all.filter(|word| word.parse::<u8>().is_ok_and(|code| code > 0)) {
        assert_ne!(codes.contains(&code), other.contains(&code), "{code}");
    }
}

/// Runs systemd-analyze; `None`, and a line that says so, where there is none.
fn analyze(args: &[&str], file: &Path) -> Option<Output> {
    match Command::new("systemd-analyze")
        .args(args)
        .arg(file)
        .output()
    {
        Ok(out) => Some(out),
        Err(error) => {
            // A root made of packages need not have systemd.
            println!("skipped: systemd-analyze does not run here: {error}");
            None
        }
    }
}

#[test]
fn systemd_finds_nothing_wrong_with_the_unit() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("mthp_ext.service");
    let verified = |text: &str| {
        fs::write(&file, text).unwrap();
        let out = analyze(&["verify", "--man=no", "--recursive-errors=no"], &file)?;
        Some(String::from_utf8_lossy(&out.stderr).into_owned())
    };
    // It looks for the program.
    let unit = UNIT.replace("/usr/local/sbin/mthp_ext", PROGRAM);
    if let Some(said) = verified(&unit) {
        assert_eq!(said, "");
        let wrong = unit.replace("WatchdogSec=", "WatchDogSec=");
        let said = verified(&wrong).unwrap();
        assert!(said.contains("WatchDogSec"), "{said}");
    }
}

#[test]
fn the_unit_exposes_little() {
    let file = Path::new(REPO).join("packaging/systemd/mthp_ext.service");
    let args = ["security", "--offline=true", "--no-pager"];
    let Some(out) = analyze(&args, &file) else {
        return;
    };
    let text = String::from_utf8_lossy(&out.stdout);
    let line = text.lines().find(|line| line.contains("Overall exposure"));
    let figure = line.and_then(|line| line.split(": ").nth(1)?.split(' ').next()?.parse().ok());
    let figure: f64 = figure.unwrap_or_else(|| panic!("no figure: {out:?}"));
    assert!(figure <= EXPOSURE, "{text}");
}

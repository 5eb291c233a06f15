// SPDX-License-Identifier: GPL-2.0-only
//! The commands of the pages for users, as a reader would type them: each page is a test.
//!
//! LAB_PAGES is where the pages are; LAB_PROGRAMS says what commands like `mthp_ext` are here.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed step fails the test"
)]

mod pages;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pages::markdown::Class;
use pages::runner::{Place, run};

const CGROUPS: &str = "/sys/fs/cgroup";
const THP: &str = "/sys/kernel/mm/transparent_hugepage";

/// Emulated guests are slow.
const PATIENCE: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(300);

/// What a page finds, and what is put back behind it.
struct World {
    settings: BTreeMap<PathBuf, String>,
    processes: BTreeSet<i32>,
    cgroups: BTreeSet<PathBuf>,
}

impl World {
    fn now() -> World {
        let mut settings = BTreeMap::new();
        read_settings(Path::new(THP), &mut settings);
        World {
            settings,
            processes: processes(),
            cgroups: cgroups(),
        }
    }

    /// Ends what a page has left, and puts its settings back.
    fn restore(&self) {
        let start = Instant::now();
        loop {
            let left = &processes() - &self.processes;
            if left.is_empty() {
                break;
            }
            assert!(start.elapsed() < PATIENCE, "{left:?} cannot be killed");
            for &process in &left {
                let _ = kill(Pid::from_raw(process), Signal::SIGKILL);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        for group in &cgroups() - &self.cgroups {
            remove(&group);
        }
        for line in read("/proc/swaps").lines().skip(1) {
            let device = line.split_whitespace().next().unwrap();
            let done = Command::new("swapoff").arg(device).status();
            assert!(done.unwrap().success(), "swapoff {device}");
        }
        for (file, value) in &self.settings {
            // Some take what they are only in certain values of others.
            let _ = fs::write(file, value);
        }
    }
}

/// The THP settings below a directory; of several words the one in brackets.
fn read_settings(directory: &Path, settings: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_settings(&path, settings);
        } else if let Ok(text) = fs::read_to_string(&path) {
            let chosen = text.split_once('[').and_then(|(_, t)| t.split_once(']'));
            let value = chosen.map_or(text.trim(), |(value, _)| value);
            settings.insert(path, value.to_owned());
        }
    }
}

/// The processes that have a program: all but those of the kernel.
fn processes() -> BTreeSet<i32> {
    let entries = fs::read_dir("/proc").unwrap();
    let names = entries.filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    let numbers = names.filter_map(|name| name.parse().ok());
    numbers
        .filter(|process| fs::read_link(format!("/proc/{process}/exe")).is_ok())
        .collect()
}

fn cgroups() -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(CGROUPS).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.is_dir()).collect()
}

fn remove(group: &Path) {
    for entry in fs::read_dir(group).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            remove(&path);
        }
    }
    let start = Instant::now();
    // Killed processes take a moment to leave.
    while let Err(error) = fs::remove_dir(group) {
        assert!(start.elapsed() < PATIENCE, "{}: {error}", group.display());
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// A directory of links: "NAME=PATH NAME=PATH".
fn programs(words: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for word in words.split_whitespace() {
        let (name, path) = word.split_once('=').unwrap();
        std::os::unix::fs::symlink(path, directory.path().join(name)).unwrap();
    }
    open(directory.path());
    directory
}

/// Lets nobody work in it, too.
fn open(directory: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(directory, fs::Permissions::from_mode(0o777)).unwrap();
}

fn failures(root: &Path, name: &str, path: &Path) -> Vec<String> {
    let page = pages::read(root, name);
    // Blocks that are wrong in their form may be run otherwise than was meant.
    if !page.problems.is_empty() {
        return page.problems;
    }
    let directory = tempfile::tempdir().unwrap();
    open(directory.path());
    let place = Place {
        class: Class::Guest,
        directory: directory.path(),
        path: Some(path),
        is_root: true,
        patience: PATIENCE,
        limit: LIMIT,
    };
    run(&page, place)
}

/// The pages with blocks for the guest, or those of them that are asked for.
fn wanted(root: &Path, asked: &[String]) -> Vec<String> {
    let mut found = pages::names(root);
    found.retain(|name| asked.is_empty() || asked.contains(name));
    found.retain(|name| {
        let page = pages::read(root, name);
        page.blocks.iter().any(|b| b.class == Class::Guest)
    });
    found
}

/// Reports as libtest does, whose tests cannot be made of what is found.
fn main() -> ExitCode {
    let in_lab = std::env::var_os("LAB_RESULTS").is_some();
    let root = std::env::var_os("LAB_PAGES").filter(|_| in_lab);
    let Some(root) = root.map(PathBuf::from) else {
        println!("running 1 test\ntest pages ... ignored, needs the lab's VM\n");
        println!("test result: ok. 0 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out");
        return ExitCode::SUCCESS;
    };
    let links = programs(&std::env::var("LAB_PROGRAMS").unwrap());
    let asked: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with("--"))
        .collect();
    let names = wanted(&root, &asked);
    let plural = if names.len() == 1 { "" } else { "s" };
    println!("running {} test{plural}", names.len());
    let world = World::now();
    let mut failed = BTreeMap::new();
    for name in &names {
        // If the guest dies, it is known in which page.
        print!("test {name} ... ");
        std::io::stdout().flush().unwrap();
        let found = failures(&root, name, links.path());
        world.restore();
        println!("{}", if found.is_empty() { "ok" } else { "FAILED" });
        if !found.is_empty() {
            failed.insert(name, found);
        }
    }
    if !failed.is_empty() {
        println!("\nfailures:\n");
        for (name, found) in &failed {
            println!("---- {name} stdout ----\n{}\n", found.join("\n"));
        }
        println!("\nfailures:");
        for name in failed.keys() {
            println!("    {name}");
        }
    }
    let passed = names.len() - failed.len();
    let end = if failed.is_empty() { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {end}. {passed} passed; {} failed; 0 ignored; 0 measured; 0 filtered out",
        failed.len()
    );
    match failed.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

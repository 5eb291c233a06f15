// SPDX-License-Identifier: GPL-2.0-only
//! The pages for users and the commands on them: which pages there are, how a page is read
//! (`markdown`), how its blocks are run (`runner`, in a shell of `session`) and compared
//! (`matching`).  CONTRIBUTING.md describes the classes of blocks for authors.

#![allow(dead_code, reason = "each test program uses its part")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed step fails the test"
)]

pub mod markdown;
pub mod matching;
pub mod runner;
pub mod session;

use std::fs;
use std::path::Path;

/// Where pages for users are: single files, and directories without what is below them.
const FILES: [&str; 3] = ["README.md", "CONTRIBUTING.md", "kernel/README.md"];
const DIRECTORIES: [&str; 2] = ["docs", "docs/policies"];

/// The pages for users below `root`, by their path from there.
pub fn names(root: &Path) -> Vec<String> {
    let mut found: Vec<String> = FILES
        .iter()
        .filter(|name| root.join(name).exists())
        .map(|&name| name.to_owned())
        .collect();
    for directory in DIRECTORIES {
        for entry in fs::read_dir(root.join(directory)).into_iter().flatten() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".md") {
                found.push(format!("{directory}/{name}"));
            }
        }
    }
    found.sort();
    found
}

/// Reads one of them.
pub fn read(root: &Path, name: &str) -> markdown::Page {
    let text = fs::read_to_string(root.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    markdown::parse(name, &text)
}

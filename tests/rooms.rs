// SPDX-License-Identifier: GPL-2.0-only
//! The rooms of src/: who uses whom, and that the table of options is the only list of them.
//! docs/internals/architecture.md has the picture.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed step fails the test"
)]

use std::fs;
use std::path::{Path, PathBuf};

use mthp_ext::model::options::OPTIONS;

/// From the one that uses nobody to the one that uses all.
const ROOMS: [&str; 4] = ["model", "kernel", "output", "commands"];

const SRC: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src");

/// The files below a directory.
fn all_files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(all_files(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

/// The Rust files of them.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = all_files(directory);
    found.retain(|path| path.extension().is_some_and(|ending| ending == "rs"));
    found
}

/// The rooms that a file names, with each place.
fn used(text: &str) -> Vec<&str> {
    text.match_indices("crate::")
        .map(|(at, prefix)| &text[at + prefix.len()..])
        .map(|rest| {
            &rest[..rest
                .find(|c: char| !c.is_alphanumeric() && c != '_')
                .unwrap_or(0)]
        })
        .collect()
}

/// What is wrong with the imports of a file in `room`.
fn wrong(room: &str, text: &str) -> Vec<String> {
    let place = |name: &str| ROOMS.iter().position(|room| *room == name);
    let own = place(room).expect("a room");
    let outside = |name: &&str| *name != "errors" && place(name).is_none_or(|at| at > own);
    let names = used(text).into_iter().filter(outside);
    names.map(|name| format!("{room} uses {name}")).collect()
}

#[test]
fn a_room_uses_those_before_it() {
    let mut problems = Vec::new();
    let mut seen = 0;
    for room in ROOMS {
        for file in files(&Path::new(SRC).join(room)) {
            seen += used(&fs::read_to_string(&file).unwrap()).len();
            let found = wrong(room, &fs::read_to_string(&file).unwrap());
            problems.extend(found.iter().map(|p| format!("{}: {p}", file.display())));
        }
    }
    assert!(seen > 50, "{seen} imports");
    assert_eq!(problems, [""; 0]);
    let others: Vec<_> = fs::read_dir(SRC)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !ROOMS.contains(&name.as_str()))
        .collect();
    assert_eq!(others.len(), 3, "errors.rs, lib.rs, main.rs: {others:?}");
}

#[test]
fn what_points_the_other_way_is_found() {
    assert_eq!(wrong("kernel", "use crate::model::abi;"), [""; 0]);
    assert_eq!(wrong("kernel", "use crate::errors::Error;"), [""; 0]);
    assert_eq!(
        wrong("model", "use crate::kernel::psi;"),
        ["model uses kernel"]
    );
    assert_eq!(
        wrong("output", "fn f() { crate::commands::run::main() }"),
        ["output uses commands"]
    );
    assert_eq!(wrong("model", "use crate::status;"), ["model uses status"]);
}

#[test]
fn the_picture_names_the_rooms_in_their_order() {
    let page = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/docs/internals/architecture.md"
    );
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains(&ROOMS.join(" < ")), "model < kernel < ...");
    let places: Vec<_> = ROOMS
        .iter()
        .map(|room| page.find(&format!(" {room}  ")).expect(room))
        .collect();
    assert!(places.is_sorted(), "{places:?}");
}

/// Options that a text names: as a word in quotes, a key, or an argument.
fn named(text: &str) -> Vec<&'static str> {
    let starts = |before: &str| {
        let word = ['"', '\'', '{', '=', '#', '\n'];
        before.is_empty()
            || before.ends_with(word)
            || before.ends_with("--")
            || before.ends_with("--set ")
    };
    let ends =
        |after: &str| !after.starts_with(|c: char| c.is_alphanumeric() || c == '-' || c == '_');
    let is_named = |name: &&str| {
        let key = format!("\"{}", name.replace('-', "_"));
        (name.contains('-') && text.contains(&key))
            || text
                .match_indices(name)
                .any(|(at, _)| starts(&text[..at]) && ends(&text[at + name.len()..]))
    };
    OPTIONS
        .iter()
        .map(|option| option.name)
        .filter(is_named)
        .collect()
}

/// A second list would have to be kept equal.  Sentences need not be: what they leave out shows
/// all the same (output/settings.rs has that test).
#[test]
fn nobody_lists_the_options_but_the_table() {
    let mut tables = 0;
    for file in files(Path::new(SRC)) {
        let text = fs::read_to_string(&file).unwrap();
        if file.ends_with("model/sentences.rs") {
            continue;
        }
        let text = text.split("#[cfg(test)]").next().unwrap();
        if !file.ends_with("model/options.rs") {
            let names = named(text);
            assert!(names.len() < 3, "{}: {names:?}", file.display());
            continue;
        }
        tables += 1;
        let (before, table) = text.split_once("pub static OPTIONS: ").unwrap();
        let (table, after) = table.split_once("\n];\n").unwrap();
        assert_eq!(named(table).len(), OPTIONS.len());
        // The check of values against each other blames three pairs of them.
        let names = named(&format!("{before}{after}"));
        assert!(names.len() <= 6, "beside the table: {names:?}");
    }
    assert_eq!(tables, 1);
    let list = "struct Settings { a: \"window\", b: \"min_memory_bytes\", c: \"--cap\" }";
    assert_eq!(named(list), ["window", "min-memory", "cap"]);
    let sentences = "\"{window} of {threshold}, once {limit-share}% is in use\"";
    assert_eq!(named(sentences), ["threshold", "window", "limit-share"]);
    let others = "window = '1s'\n#min-memory = 1\nrun --set limit-share=50, and cap what fits";
    assert_eq!(named(others), ["window", "min-memory", "limit-share"]);
}

/// Files outside of src/ that name most options, and why they are no second list.
const NAME_MANY: [(&str, &str); 1] = [(
    "lab/bench/variants.py",
    "it varies them: each with values of its own and the cases that show them",
)];

/// The most options that a text names in thirty lines.
fn most_named(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let starts = (0..lines.len()).step_by(10);
    let parts = starts.map(|at| lines[at..lines.len().min(at + 30)].join("\n"));
    parts.map(|part| named(&part).len()).max().unwrap_or(0)
}

/// Neither do tests, the lab and packages, which may use a few.
#[test]
fn nor_does_anybody_outside_of_the_program() {
    let list =
        |text: &str| 2 * named(text).len() > OPTIONS.len() && 2 * most_named(text) > OPTIONS.len();
    let repo = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for room in ["tests", "lab", "packaging"] {
        for file in all_files(&repo.join(room)) {
            // What is no text is no list.
            if fs::read_to_string(&file).is_ok_and(|text| list(&text)) {
                found.push(file.strip_prefix(repo).unwrap().display().to_string());
            }
        }
    }
    assert_eq!(found, NAME_MANY.map(|(file, _)| file));
    let all: Vec<_> = OPTIONS
        .iter()
        .map(|option| format!("{:?}", option.name))
        .collect();
    assert!(list(&all[..8].join(",\n")) && !list(&all[..7].join(",\n")));
}

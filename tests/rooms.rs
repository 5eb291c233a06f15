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

/// The Rust files below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
    found.sort();
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

/// Options that a text names, without its unit tests.
fn named(text: &str) -> Vec<&'static str> {
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    let quoted = |name: &str| {
        let (plain, long) = (format!("\"{name}\""), format!("\"--{name}\""));
        let key = format!("\"{}", name.replace('-', "_"));
        let place = format!("{{{name}}}");
        text.contains(&place)
            || text.contains(&plain)
            || text.contains(&long)
            || (name.contains('-') && text.contains(&key))
    };
    let all = OPTIONS.iter().map(|option| option.name);
    all.filter(|name| quoted(name)).collect()
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
        if !file.ends_with("model/options.rs") {
            let names = named(&text);
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
}

// SPDX-License-Identifier: GPL-2.0-only
//! The rooms of src/: who uses whom, in circles or not, and that the table of options is the only
//! list of them.
//! docs/internals/architecture.md has the picture.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed step fails the test"
)]

use std::collections::{BTreeMap, BTreeSet};
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

/// For each module of a room those that it uses.
type Uses = BTreeMap<String, BTreeSet<String>>;

/// The text without comments, and what of it is the module `tests` at its end.
fn code_and_tests(text: &str) -> (String, String) {
    let lines = text.lines().map(|line| line.split("//").next().unwrap());
    let code: String = lines.flat_map(|line| [line, "\n"]).collect();
    match code.split_once("mod tests {") {
        Some((code, tests)) => (code.to_owned(), tests.to_owned()),
        None => (code, String::new()),
    }
}

/// The first names of what follows: `a` of `a::B`, `a` and `b` of `{a::{C, D}, b}`.
fn first_names(rest: &str) -> BTreeSet<String> {
    let part_of_name = |c: char| c.is_alphanumeric() || c == '_';
    let name = |text: &str| -> String { text.chars().take_while(|c| part_of_name(*c)).collect() };
    let Some(group) = rest.strip_prefix('{') else {
        return BTreeSet::from([name(rest)]);
    };
    let (mut found, mut depth, mut begins) = (BTreeSet::new(), 1, true);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => begins = true,
            _ if begins && part_of_name(c) => {
                found.insert(name(&group[at..]));
                begins = false;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    found
}

/// What a text names in the room `of`, a path as in `commands` or `commands::run`.  `depth`: so
/// many `super::` lead there.
fn used_in(of: &str, depth: usize, text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for start in [format!("crate::{of}::"), "super::".repeat(depth)] {
        for (at, start) in text.match_indices(&start) {
            let before = text[..at].chars().next_back();
            // Of a longer path it is the end: `super::super::a` is not `super::a`.
            if before.is_none_or(|c| c != ':' && c != '_' && !c.is_alphanumeric()) {
                found.extend(first_names(&text[at + start.len()..]));
            }
        }
    }
    // Which of a group are of the room nobody looks up: name each by a `use` of its own.
    if text.contains("use crate::{") {
        found.insert("crate::{}".to_owned());
    }
    // `super::super::a` begins with `super::`, and `super::*` names nothing.
    found.retain(|name| !name.is_empty() && name != "super");
    found
}

/// Adds what a file uses of the room `of`.  `path`: the file's, in the room: `notify.rs`,
/// `run/pace.rs`.
fn add_uses(uses: &mut Uses, of: &str, path: &str, text: &str) {
    let steps: Vec<&str> = path.trim_end_matches(".rs").split('/').collect();
    let (code, tests) = code_and_tests(text);
    let mut found = used_in(of, steps.len(), &code);
    found.extend(used_in(of, steps.len() + 1, &tests));
    found.remove(steps[0]);
    uses.entry(steps[0].to_owned()).or_default().extend(found);
}

/// Modules each of which uses the next, and the last one the first.
fn circle(uses: &Uses) -> Option<String> {
    let mut left = uses.clone();
    // A module that uses none of those left is on no circle.
    loop {
        let names: BTreeSet<String> = left.keys().cloned().collect();
        for used in left.values_mut() {
            used.retain(|name| names.contains(name));
        }
        left.retain(|_, used| !used.is_empty());
        if left.len() == names.len() {
            break;
        }
    }
    // Each of the others uses another of them: whoever follows comes to one twice.
    let mut way = vec![left.keys().next()?];
    loop {
        let next = left[*way.last().unwrap()].first().unwrap();
        let begun = way.iter().position(|name| *name == next);
        way.push(next);
        if let Some(begun) = begun {
            let names: Vec<&str> = way[begun..].iter().map(|name| name.as_str()).collect();
            return Some(names.join(" -> "));
        }
    }
}

/// What is wrong with the uses within a room: a circle, or a name that is no module.  The latter
/// would hide whom it is from.
fn wrong_within(of: &str, uses: &Uses) -> Vec<String> {
    let circle = circle(uses).map(|circle| format!("{of}: {circle}"));
    let strangers = uses.iter().flat_map(|(module, used)| {
        let strange = used.iter().filter(|name| !uses.contains_key(*name));
        strange.map(move |name| format!("{of}: {module} uses {name}, which is no module"))
    });
    circle.into_iter().chain(strangers).collect()
}

/// The uses within a directory of src/: a room, or a module of several files.
fn uses_within(directory: &Path) -> Uses {
    let path_in = |file: &Path, directory: &Path| {
        let path = file.strip_prefix(directory).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let of = path_in(directory, Path::new(SRC)).replace('/', "::");
    let mut uses = Uses::new();
    for file in files(directory) {
        let path = path_in(&file, directory);
        let text = fs::read_to_string(&file).unwrap();
        match path.as_str() {
            // It is the room itself, and names its modules.
            "mod.rs" => {
                let others = text.lines().find(|line| {
                    !line.is_empty() && !line.starts_with("//") && !line.contains("mod ")
                });
                assert_eq!(others, None, "{}", file.display());
            }
            // Those of the module that the directory is of.
            "tests.rs" => {}
            _ => add_uses(&mut uses, &of, &path, &text),
        }
    }
    uses
}

/// What uses each other is one module in two files.  A directory within a room is one of its
/// modules, and has no circle itself.
#[test]
fn no_modules_of_a_room_use_each_other_in_circles() {
    let mut problems = Vec::new();
    let mut seen = 0;
    for room in ROOMS {
        let room_directory = Path::new(SRC).join(room);
        let all = files(&room_directory);
        let directories = all.iter().map(|file| file.parent().unwrap());
        for directory in directories.collect::<BTreeSet<&Path>>() {
            let mut uses = uses_within(directory);
            seen += uses.values().map(BTreeSet::len).sum::<usize>();
            let of = directory.strip_prefix(SRC).unwrap().display().to_string();
            if directory != room_directory {
                // The others are of the module that the directory is of: it may have names itself.
                let modules: BTreeSet<String> = uses.keys().cloned().collect();
                uses.values_mut()
                    .for_each(|used| used.retain(|name| modules.contains(name)));
            }
            problems.extend(wrong_within(&of, &uses));
        }
    }
    assert!(seen > 100, "{seen} uses");
    assert_eq!(problems, [""; 0]);
}

#[test]
fn a_circle_is_found() {
    let problems = |files: &[(&str, &str)]| {
        let mut uses = Uses::new();
        for (path, text) in files {
            add_uses(&mut uses, "commands", path, text);
        }
        wrong_within("commands", &uses)
    };
    let (cli, other) = ("use super::schema;", ("status.rs", "use super::cli::Args;"));
    assert_eq!(problems(&[("cli.rs", ""), other]), [""; 0]);
    // What a group of the whole crate uses of this room is not seen.
    for group in [
        "use crate::{commands::status, errors};",
        "use crate::{self as all};",
    ] {
        let all = problems(&[("cli.rs", group)]);
        assert_eq!(
            all,
            ["commands: cli uses crate::{}, which is no module"],
            "{group}"
        );
    }
    // Over a group, from a directory, by a path of the crate, and in the tests of a file.
    for schema in [
        "use super::{status, cli::{Args, Cli}};",
        "use super::{\n    status,\n};",
        "fn f() { crate::commands::status::main() }",
        "#[cfg(test)]\nmod tests {\n    use super::super::status;\n}",
    ] {
        let files = [("cli.rs", cli), other, ("schema.rs", schema)];
        let found = problems(&files);
        let expected = match schema.contains("cli") {
            true => "commands: cli -> schema -> cli",
            false => "commands: cli -> schema -> status -> cli",
        };
        assert_eq!(found, [expected], "{schema}");
    }
    let run = ("run/pace.rs", "use super::super::notify::Manager;");
    let notify = ("notify.rs", "use super::run::not_again;");
    assert_eq!(
        problems(&[run, ("run.rs", ""), notify]),
        ["commands: notify -> run -> notify"]
    );
    // Within run/ that is another question, and a comment uses nobody.
    let within = ("run/pace.rs", "use super::lines;\n// super::super::notify");
    assert_eq!(problems(&[within, ("run.rs", ""), notify]), [""; 0]);
    // What is in the tests of a file is one further down.
    let tests = "mod tests {\n    use super::schema;\n}";
    assert_eq!(
        problems(&[("cli.rs", tests), ("schema.rs", "use super::cli;")]),
        [""; 0]
    );
    assert_eq!(
        problems(&[("cli.rs", "use super::Report;")]),
        ["commands: cli uses Report, which is no module"]
    );
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
        // Tests are left out: here those in files of their own, below the others.
        if file.ends_with("model/sentences.rs") || file.ends_with("tests.rs") {
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
    assert_eq!(found, [""; 0]);
    let all: Vec<_> = OPTIONS
        .iter()
        .map(|option| format!("{:?}", option.name))
        .collect();
    assert!(list(&all[..8].join(",\n")) && !list(&all[..7].join(",\n")));
}

// SPDX-License-Identifier: GPL-2.0-only
//! The pages for users, on the host: every block of commands says where it runs, and the blocks for
//! the host do what the page shows.  The guest's are in e2e_docs.rs.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed step fails the test"
)]

mod pages;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigHandler, Signal, signal};
use pages::markdown::{self, Class, Named};
use pages::matching::{self, Mismatch};
use pages::runner::{self, Place};

const REPO: &str = env!("CARGO_MANIFEST_DIR");

/// How long a block on the host may take.
const LIMIT: Duration = Duration::from_secs(120);

/// The same for a command of the tests here.
const PATIENCE: Duration = Duration::from_secs(20);

/// LAB_ONLY_PAGES: those of the pages that are asked for.
fn wanted() -> Vec<String> {
    let mut names = pages::names(Path::new(REPO));
    if let Ok(only) = std::env::var("LAB_ONLY_PAGES") {
        names.retain(|name| only.split_whitespace().any(|word| word == name));
    }
    names
}

fn git(directory: &Path, args: &[&str]) -> String {
    let mut command = Command::new("git");
    // The checkout may be another user's.
    let out = command
        .args(["-c", "safe.directory=*", "-C"])
        .arg(directory)
        .args(args)
        .output()
        .expect("git");
    let errors = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "git {args:?}: {errors}");
    String::from_utf8(out.stdout).unwrap()
}

/// The checkout as a repository of its own, with what is not committed.
fn clone(target: &Path) {
    let repo = Path::new(REPO);
    let files = git(repo, &["ls-files", "-z", "-co", "--exclude-standard"]);
    for name in files.split_terminator('\0') {
        let (from, to) = (repo.join(name), target.join(name));
        // Deleted and not committed.
        if !from.is_file() {
            continue;
        }
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(&from, &to).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    git(target, &["init", "--quiet"]);
    git(target, &["add", "--all"]);
    let author = ["-c", "user.name=test", "-c", "user.email=test@invalid"];
    let commit = ["commit", "--quiet", "--message", "the checkout"];
    git(target, &[&author[..], &commit[..]].concat());
}

#[test]
fn there_are_pages() {
    let names = pages::names(Path::new(REPO));
    for name in ["README.md", "docs/policies.md", "docs/policies/default.md"] {
        assert!(names.iter().any(|one| one == name), "{name}: {names:?}");
    }
}

#[test]
fn every_block_of_commands_says_where_it_runs() {
    let problems: Vec<String> = wanted()
        .iter()
        .flat_map(|name| pages::read(Path::new(REPO), name).problems)
        .collect();
    fail_for(&problems);
}

/// What reasons of a page name and is not there, where the Makefile is `makefile`.
fn not_there(page: &markdown::Page, makefile: &str) -> Vec<String> {
    let phony = makefile.lines().find_map(|l| l.strip_prefix(".PHONY:"));
    let targets: Vec<&str> = phony.expect(".PHONY").split_whitespace().collect();
    let mut found = Vec::new();
    for reason in &page.reasons {
        for one in reason.named() {
            let what = match one {
                Named::Target(name) if !targets.contains(&name) => format!("make {name}"),
                Named::Path(name) if !Path::new(REPO).join(name).exists() => name.to_owned(),
                _ => continue,
            };
            found.push(format!("{}:{}: no {what}", page.name, reason.number));
        }
    }
    found
}

#[test]
fn what_reasons_name_as_proof_exists() {
    let makefile = fs::read_to_string(format!("{REPO}/Makefile")).unwrap();
    let read = |name: &String| pages::read(Path::new(REPO), name);
    let pages: Vec<markdown::Page> = wanted().iter().map(read).collect();
    let missing: Vec<String> = pages
        .iter()
        .flat_map(|page| not_there(page, &makefile))
        .collect();
    fail_for(&missing);
    // They are read at all.
    if std::env::var("LAB_ONLY_PAGES").is_err() {
        let reasons = pages.iter().flat_map(|page| &page.reasons);
        assert!(reasons.map(|one| one.named().len()).sum::<usize>() > 25);
    }
}

/// `PROGRAM::TEST` on a page is a test of tests/PROGRAM.rs.
#[test]
fn tests_that_pages_name_exist() {
    let page = fs::read_to_string(format!("{REPO}/docs/operations.md")).unwrap();
    let named: Vec<(&str, &str)> = page
        .split('`')
        .skip(1)
        .step_by(2)
        .filter_map(|span| span.split_once("::"))
        .filter(|(program, _)| program.starts_with("e2e_"))
        .collect();
    assert!(named.len() > 20, "{named:?}");
    for (program, test) in named {
        let text = fs::read_to_string(format!("{REPO}/tests/{program}.rs")).unwrap();
        assert!(
            text.contains(&format!("\nfn {test}() {{")),
            "{program}::{test}"
        );
    }
}

#[test]
fn the_clone_is_the_checkout() {
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    clone(scratch.path());
    let same = |name: &str| fs::read(Path::new(REPO).join(name)).unwrap();
    for name in ["Makefile", "tests/docs.rs"] {
        assert_eq!(fs::read(scratch.path().join(name)).unwrap(), same(name));
    }
    assert!(!scratch.path().join("build").exists());
    assert_eq!(git(scratch.path(), &["status", "--short"]), "");
}

#[test]
fn blocks_for_the_host_do_what_the_page_shows() {
    let mut failures = Vec::new();
    for name in wanted() {
        let page = pages::read(Path::new(REPO), &name);
        // Blocks that are wrong in their form may be run otherwise than was meant.
        let has_any = page.blocks.iter().any(|b| b.class == Class::Host);
        if !has_any || !page.problems.is_empty() {
            continue;
        }
        let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let directory = scratch.path().join("mthp_ext");
        fs::create_dir(&directory).unwrap();
        clone(&directory);
        failures.extend(runner::run(&page, on_host(&directory, LIMIT)));
    }
    fail_for(&failures);
}

/// Fails without a backtrace, which would be of no use behind these.
fn fail_for(failures: &[String]) {
    if !failures.is_empty() {
        println!("{}", failures.join("\n"));
        std::panic::resume_unwind(Box::new("failures"));
    }
}

fn on_host(directory: &Path, limit: Duration) -> Place<'_> {
    Place {
        class: Class::Host,
        directory,
        path: None,
        is_root: false,
        patience: limit,
        limit,
    }
}

// The reader and the runner themselves, on pages of their own.

/// What is wrong with a page, without its name.
fn problems(text: &str) -> Vec<String> {
    let page = markdown::parse("page", text);
    let own = page.problems.iter().map(|one| one.strip_prefix("page:"));
    own.map(|one| one.unwrap().to_owned()).collect()
}

/// What fails on a page whose blocks for the guest run here.
fn failures(text: &str) -> String {
    failures_within(text, PATIENCE)
}

fn failures_within(text: &str, patience: Duration) -> String {
    let page = markdown::parse("page", text);
    assert_eq!(page.problems, [""; 0]);
    let directory = tempfile::tempdir().unwrap();
    let place = Place {
        class: Class::Guest,
        patience,
        ..on_host(directory.path(), LIMIT)
    };
    runner::run(&page, place).join("\n")
}

#[test]
fn a_page_in_order_has_no_problems() {
    let text = "\
# Title

- an item

    of two paragraphs

```text
no command
```

<!-- guest: true -->
```console guest
# mthp_ext run
attached
^C
detached
$ echo \\
    more
more
```

<!-- after: 1 -->
<!-- exit: 3 -->
```console guest meanwhile
# false
```

```console elsewhere
$ make demo
```
<!-- elsewhere: it takes half an hour; `make test`
     runs its smallest scale. -->
";
    assert_eq!(problems(text), [""; 0]);
    let page = markdown::parse("page", text);
    let [first, second, third] = &page.blocks[..] else {
        panic!("{page:?}")
    };
    assert_eq!(first.setup[0].text, "true");
    assert_eq!(first.interrupted().unwrap().interrupt, Some(1));
    assert_eq!(first.steps[0].expected.len(), 2);
    assert_eq!(first.steps[1].command, "echo \\\n    more");
    assert!(first.steps[1].as_user && !first.steps[0].as_user);
    assert!(second.meanwhile);
    assert_eq!((second.after, second.steps[0].exit), (Some(1), Some(3)));
    assert_eq!(third.class, Class::Elsewhere);
}

#[test]
fn a_proof_that_is_not_there_is_found() {
    let makefile = ".PHONY: help test\n";
    for (reason, wanted) in [
        (
            "as `make test` and tests/docs.rs do; see lab/tests.",
            vec![],
        ),
        (
            "`make SCALE=full test` has it, `make` alone; to make one",
            vec![],
        ),
        ("it takes long; `make tests` runs it", vec!["make tests"]),
        ("`make X=1 gone TEST=a`,\n`make help`", vec!["make gone"]),
        (
            "of tests/gone.rs, and (lab/gone/); docs",
            vec!["tests/gone.rs", "lab/gone/"],
        ),
    ] {
        let text = format!("```console elsewhere\n# a\n```\n<!-- elsewhere: {reason} of it -->\n");
        let page = markdown::parse("page", &text);
        let wanted: Vec<String> = wanted
            .iter()
            .map(|name| format!("page:4: no {name}"))
            .collect();
        assert_eq!(not_there(&page, makefile), wanted, "{reason}");
    }
}

#[test]
fn problems_are_found() {
    let run = "```console guest\n# run\nup\n^C\n```\n";
    let reason = "<!-- elsewhere: too short -->\n";
    for (text, wanted) in [
        ("```\n# true\n```\n", "1: a block without a class"),
        ("```sh\ntrue\n```\n", "1: an unknown class: sh"),
        ("```console\n# a\n```\n", "1: an unknown class: console"),
        (
            "```console gest\n# a\n```\n",
            "1: an unknown class: console gest",
        ),
        ("a\n\n~~~\n# true\n~~~\n", "3: a block without a class"),
        ("```text\n$ true\n```\n", "1: commands in a block of text"),
        ("\n    # true\n", "2: an indented block of code"),
        ("a\n\n\t# true\n", "3: an indented block of code"),
        ("- a\n\nb\n\n    # true\n", "5: an indented block of code"),
        ("> ```console guest\n", "1: a block in a quotation"),
        (
            "```console guest\n```\n",
            "1: a block of commands without a command",
        ),
        ("```console guest\n# a\n", "1: a block without an end"),
        ("<!-- guest: a\n", "1: a comment without an end"),
        ("```console guest\nout\n# a\n```\n", "2: output before the"),
        ("```console guest\n# a\n^C\n^C\n```\n", "4: a second ^C"),
        (
            "```console guest\n# a\n...\n^C\n```\n",
            "1: no line of output before ^C",
        ),
        (
            "```console guest\n# a\n^C\n# a\n^C\n```\n",
            "1: more than one ^C",
        ),
        (
            "```console host\n# a\n```\n",
            "2: a test on the host is not",
        ),
        (
            "```console elsewhere\n# a\n```\n",
            "1: `elsewhere` without its reason",
        ),
        (
            &format!("```console elsewhere\n# a\n```\n\n{reason}"),
            "5: no reason",
        ),
        (reason, "1: a reason without an `elsewhere` block"),
        (
            "```console guest meanwhile\n# a\n```\n",
            "1: `meanwhile` behind a block without ^C",
        ),
        (
            &format!("{run}```console guest\n# a\n```\n```console guest meanwhile\n# a\n```\n"),
            "9: `meanwhile` behind a block without ^C",
        ),
        (
            &format!("{run}<!-- after: 2 -->\n```console guest meanwhile\n# a\n```\n"),
            "7: `after` more lines",
        ),
        (
            &format!("{run}```console guest meanwhile\n# a\n^C\n```\n"),
            "6: a `meanwhile` block cannot",
        ),
        (&format!("<!-- after: 1 -->\n{run}"), "1: `after` before"),
        ("<!-- exit: x -->\n", "1: exit: wants"),
        (
            "<!-- exit: 1 -->\ntext\n",
            "1: a comment for a block, and no",
        ),
        (
            &format!("<!-- host: true -->\n{run}"),
            "1: hidden commands for",
        ),
        ("text <!-- guest: true -->\n", "1: a comment for blocks"),
    ] {
        let found = problems(text);
        let is_wanted = |one: &String| one.starts_with(wanted);
        assert!(found.iter().any(is_wanted), "{wanted}: {found:?}\n{text}");
    }
}

#[test]
fn lines_are_compared() {
    for (expected, actual, same) in [
        ("a  b", "a b ", true),
        ("a b", "a c", false),
        ("took 1,234.5 ms.", "took 7 ms.", true),
        ("took 12 ms", "took 12 s", false),
        ("7.3.4-rc1", "6.12-rc10", true),
        ("none", "5", false),
        ("5", "none", false),
        ("headroom: ... left", "headroom: 1.2G left", true),
        ("headroom: ... left", "headroom: 1.2G", false),
        ("a ... b ... c", "a x b c", false),
        ("a ... b ... c", "a x b y c", true),
        ("a...", "a", true),
        ("a...a", "a", false),
    ] {
        assert_eq!(
            matching::line(expected, actual),
            same,
            "{expected:?} {actual:?}"
        );
    }
}

#[test]
fn sequences_are_compared() {
    let differ = |expected, actual| Err(Mismatch { expected, actual });
    for (expected, actual, begins, result) in [
        ("", "", false, Ok(())),
        ("", "a", false, differ(0, 0)),
        ("a", "", false, differ(0, 0)),
        ("a b", "a b", false, Ok(())),
        ("a b", "a b c", false, differ(2, 2)),
        ("a b", "a b c", true, Ok(())),
        ("a b", "a c", true, differ(1, 1)),
        ("...", "a b", false, Ok(())),
        ("a ...", "a", false, Ok(())),
        ("a ... d", "a b c d", false, Ok(())),
        ("a ... d", "a b d c", false, differ(2, 3)),
        ("a ... d", "a b d c", true, Ok(())),
        ("... b c ... d", "a b b c d", false, Ok(())),
        ("... b c ... d", "b d c d", false, differ(2, 1)),
        ("a ... a", "a", false, differ(2, 1)),
    ] {
        let words = |text: &'static str| text.split_whitespace().collect::<Vec<_>>();
        let found = matching::lines(&words(expected), &words(actual), begins);
        assert_eq!(found, result, "{expected:?} {actual:?} {begins}");
    }
}

#[test]
fn a_page_is_one_session() {
    let text = "\
<!-- guest: mkdir sub; (sleep 60; echo late) & -->
```console guest
# cd sub; name=value
# pwd
.../sub
```

```console guest
# echo $name; echo 'quoted \"text\"' # with a comment
value
quoted \"text\"
# printf 'no end'
no end
# cat
# false
# echo $?
1
# sh -c 'echo trouble >&2; exit 7'
trouble
# echo $?
7
```

<!-- exit: 3 -->
```console guest
# true
# sh -c 'exit 3'
```
";
    assert_eq!(failures(text), "");
}

#[test]
fn what_is_not_as_shown_fails() {
    for (body, wanted) in [
        (
            "# echo a\nb",
            "page:2: # echo a\n  expected (line 3): b\n  came: a\n",
        ),
        ("# echo a", "expected: no further line\n  came: a\n"),
        (
            "# true\na",
            "expected (line 3): a\n  came: no further line\n",
        ),
        ("# sh -c 'exit 4'", "exit code 4, expected 0\n"),
        ("# false\n# echo $?\n2", "expected (line 4): 2\n  came: 1\n"),
        ("# false\n# true", "exit code 1, expected 0\n"),
        (
            "# exit 3",
            "the shell has ended\nthe rest of the page was not run",
        ),
        ("# echo 'a", "the shell has ended\n"),
        (
            "# sh -c 'trap \"exit 5\" INT; echo a; while :; do sleep 0.05; done'\na\n^C",
            "exit code 5, expected 0\n",
        ),
        (
            "# echo a; sleep 0.1\na\n...\na\n^C",
            "came: no further line",
        ),
    ] {
        let found = failures(&format!("```console guest\n{body}\n```\n"));
        assert!(found.contains(wanted), "{wanted}\nfound: {found}");
    }
    let hidden = "<!-- guest: echo a; false -->\n```console guest\n# true\n```\n";
    let found = failures(hidden);
    assert!(
        found.contains(
            "page:1: hidden: echo a; false\n  exit code 1\n  all that came (1 lines):\n    a\n"
        ),
        "{found}"
    );
    let ended = "```console guest\n# echo a\na\n^C\n```\n";
    let later = "```console guest meanwhile\n# sleep 0.5\n```\n";
    assert!(failures(&format!("{ended}{later}")).contains("it ended before ^C"));
    let promised = "<!-- exit: 3 -->\n```console guest\n# true\n```\n";
    assert!(failures(promised).contains("exit code 0, expected 3"));
}

#[test]
fn a_command_that_does_not_end_fails() {
    let text = "```console guest\n# echo a; sleep 60\na\n```\n";
    let found = failures_within(text, Duration::from_secs(1));
    assert!(found.contains("  nothing came for "), "{found}");
    assert!(
        found.ends_with("the rest of the page was not run"),
        "{found}"
    );
}

/// Runs until ^C, as `mthp_ext run` does; prints a line for each file of the name it is given.
const DAEMON: &str = "\
printf '%s\\n' 'trap \"echo down; exit 0\" INT' 'echo up 1' \\
    'until test -e load; do sleep 0.02; done; echo loaded; while :; do sleep 0.02; done' >daemon;
";

#[test]
fn an_interrupted_command_has_a_second_terminal() {
    // As when the tests run in the background of a script.
    // SAFETY: no handler, and nothing in this program waits for the signal.
    unsafe { signal(Signal::SIGINT, SigHandler::SigIgn) }.unwrap();
    let text = format!(
        "<!-- guest: {DAEMON} -->
<!-- guest: (trap 'echo hit >hit' INT; while :; do sleep 0.05; done) & -->
```console guest
# sh daemon
up 2
loaded
^C
down
# test -e hit
# echo $?
1
```

<!-- after: 1 -->
<!-- guest: sleep 0.1 -->
```console guest meanwhile
# touch load
```

```console guest meanwhile
# echo both
both
```

```console guest
# ls
daemon
load
```
"
    );
    assert_eq!(failures(&text), "");
}

#[test]
fn what_a_daemon_does_not_say_fails() {
    let page = |lines: &str| {
        format!(
            "<!-- guest: {DAEMON} touch load -->\n```console guest\n# sh daemon\n{lines}\n```\n"
        )
    };
    for (lines, wanted) in [
        ("up 1\nunloaded\n^C\ndown", "unloaded\n  came: loaded\n"),
        ("up 1\nloaded\n^C\ngone", "gone\n  came: down\n"),
        (
            "up 1\nloaded\n^C",
            "expected: no further line\n  came: down\n",
        ),
    ] {
        let begun = Instant::now();
        let found = failures(&page(lines));
        assert!(found.contains(wanted), "{wanted}\nfound: {found}");
        assert!(!found.contains("was not run"), "{found}");
        assert!(
            begun.elapsed() < PATIENCE / 2,
            "it waited for the impossible"
        );
    }
    let silent = page("up 1\nloaded\nnever\n^C\ndown\n# false");
    let found = failures_within(&silent, Duration::from_secs(1));
    for wanted in [
        "never\n  came: down\n",
        "# false\n  exit code 1, expected 0",
    ] {
        assert!(found.contains(wanted), "{wanted}\nfound: {found}");
    }
}

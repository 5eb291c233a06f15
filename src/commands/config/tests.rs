// SPDX-License-Identifier: GPL-2.0-only

use std::os::unix::fs::{OpenOptionsExt, symlink};

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

    fn plan(&self) -> Made {
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

/// Somebody reads a configuration, and waits in each round for a policy, which comes by a pipe.
struct Reader {
    files: Files,
    thread: std::thread::JoinHandle<Made>,
}

impl Reader {
    /// What is read before the pipe are the configuration and `own.toml`.
    fn new() -> Self {
        let files = Files::new("", &[]);
        let at = |name: &str| files.dir.path().join(name).display().to_string();
        let text = format!(
            "policy = '{}'\n[[override]]\ncgroups = 'x'\npolicy = '{}'\n",
            at("own.toml"),
            at("pipe.toml")
        );
        std::fs::write(at("config.toml"), text).unwrap();
        std::fs::write(at("own.toml"), policy_about("one")).unwrap();
        make_pipe(Path::new(&at("pipe.toml")));
        let (file, directory) = (files.file(), files.directory.clone());
        let thread = std::thread::spawn(move || plan(&file, &directory, &X86));
        Reader { files, thread }
    }

    /// In the midst of a round a file is moved into its place.
    fn round(&self, put: Option<(&str, &str)>) {
        let at = |name: &str| self.files.dir.path().join(name);
        // Without a wait, which would be for ever where nobody reads any more.
        let open = || {
            let mut options = std::fs::File::options();
            options.write(true).custom_flags(nix::libc::O_NONBLOCK);
            options.open(at("pipe.toml")).ok()
        };
        let mut pipe = loop {
            if let Some(pipe) = open() {
                break pipe;
            }
            assert!(!self.thread.is_finished(), "it has read all");
            std::thread::sleep(std::time::Duration::from_millis(1));
        };
        // The next round waits for another one.
        make_pipe(&at("new"));
        std::fs::rename(at("new"), at("pipe.toml")).unwrap();
        if let Some((name, text)) = put {
            std::fs::write(at("new"), text).unwrap();
            std::fs::rename(at("new"), at(name)).unwrap();
        }
        pipe.write_all(policy_about("pipe").as_bytes()).unwrap();
    }
}

fn make_pipe(path: &Path) {
    nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
}

fn policy_about(about: &str) -> String {
    format!("about = '{about}'\nrules = ['room']\n")
}

/// A policy that is named as a file is one of those that are read, and no link has to be there.
#[test]
fn a_file_that_is_moved_into_its_place_meanwhile_is_read_again() {
    let reader = Reader::new();
    reader.round(Some(("own.toml", &policy_about("two"))));
    reader.round(None);
    let (plan, problems) = reader.thread.join().unwrap().unwrap();
    assert_eq!(problems, []);
    assert_eq!(plan.root.policy.about, "two");
}

/// What it comes to could be a mixture.
#[test]
fn files_that_never_stay_are_no_configuration() {
    let reader = Reader::new();
    let config = std::fs::read_to_string(reader.files.file()).unwrap();
    for _ in 0..=MAX_REREADS {
        reader.round(Some(("config.toml", &config)));
    }
    let problems = reader.thread.join().unwrap().map(|_| ()).unwrap_err();
    let said: Vec<String> = problems.iter().map(Problem::to_string).collect();
    assert_eq!(said.len(), 1, "{said:?}");
    let words = "config.toml: while it was read, 6 times in a row, somebody exchanged it";
    assert!(said[0].contains(words), "{said:?}");
    assert_eq!(unusable(&reader.files.file(), &problems).code(), 2);
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

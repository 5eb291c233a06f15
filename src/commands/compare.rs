// SPDX-License-Identifier: GPL-2.0-only
//! `mthp_ext compare`: what two nodes, or two days of one, do otherwise: of their answers to
//! `status --json`, without asking any kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::args::CompareArgs;
use crate::errors::{Error, Result};
use crate::model::compare::{self, CHANCE, Figure, Kind, LEAST, Look};
use crate::model::reason::Reason;
use crate::model::shown;
use crate::output::{print, table};

/// The exit code if something has changed.
const CHANGED: u8 = 19;

/// All cgroups together, in the place of a path.
const ALL: &str = "all cgroups";

/// One figure of a cgroup that is compared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(tag = "figure", rename_all = "kebab-case")]
enum Of {
    /// Share of the requests that were narrowed, by any rule or by one.
    Narrowed {
        reason: &'static str,
        rule: Option<String>,
    },
    /// Share of its memory that is in huge pages of PMD size.
    HugeCoverage,
    /// Share of the time that it stalled on memory.
    Stall,
    /// Share of the looks at which it counted as stalled.
    Pressure,
}

impl Of {
    fn text(&self) -> String {
        match self {
            Of::Narrowed { reason, rule: None } => format!("{reason}: narrowed"),
            Of::Narrowed {
                reason,
                rule: Some(rule),
            } => format!("{reason}: narrowed by {}", shown::shown(rule.as_bytes())),
            Of::HugeCoverage => "memory in huge pages".to_owned(),
            Of::Stall => "time stalled on memory".to_owned(),
            Of::Pressure => "looks under pressure".to_owned(),
        }
    }
}

/// A figure that differs by more than noise; shares of 1.
#[derive(Debug, Serialize, JsonSchema)]
struct Change {
    cgroup: String,
    #[serde(flatten)]
    of: Of,
    before: f64,
    after: f64,
    /// What chance adds to a difference of 2 points; more than both is no chance.
    noise: f64,
}

/// Something that is no figure, and is not the same.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
struct Differs {
    what: String,
    before: Value,
    after: Value,
}

/// One of the two.
#[derive(Debug, Serialize, JsonSchema)]
struct Source {
    file: String,
    /// Answers in it.
    looks: usize,
}

/// The answer.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Report {
    sides: [Source; 2],
    /// Settings and policies.
    differs: Vec<Differs>,
    changes: Vec<Change>,
    /// Figures that both have.
    compared: usize,
    only_before: Vec<String>,
    only_after: Vec<String>,
}

/// What was counted of one reason: requests, and those narrowed by rule.
#[derive(Clone, Debug, Default)]
struct Counted {
    requests: f64,
    narrowed: BTreeMap<String, f64>,
}

/// The looks at one cgroup.
#[derive(Debug, Default)]
struct Cgroup {
    counted: BTreeMap<&'static str, Vec<Counted>>,
    coverage: Vec<Look>,
    stall: Vec<Look>,
    pressure: Vec<Look>,
}

/// All that a file says.
struct Side {
    file: String,
    looks: Vec<Value>,
    cgroups: BTreeMap<String, Cgroup>,
}

fn number(value: &Value) -> Option<f64> {
    value.as_f64().filter(|number| number.is_finite())
}

/// What a line of `status` has counted for a reason since the policy was loaded.
fn counted(line: &Value, reason: &str) -> Counted {
    let rules = line["narrowed"][reason].as_object();
    let narrowed = rules.into_iter().flatten();
    Counted {
        requests: number(&line["requests"][reason]).unwrap_or(0.0),
        narrowed: narrowed
            .filter_map(|(rule, count)| Some((rule.clone(), number(count)?)))
            .collect(),
    }
}

/// What came in between; all of it where counting began anew, as after a start of the daemon.
fn since(now: &Counted, before: Option<&Counted>) -> Counted {
    let Some(before) = before else {
        return now.clone();
    };
    let less =
        |rule: &String, count: &f64| *count < before.narrowed.get(rule).copied().unwrap_or(0.0);
    if now.requests < before.requests || now.narrowed.iter().any(|(rule, count)| less(rule, count))
    {
        return now.clone();
    }
    let narrowed = now.narrowed.iter().map(|(rule, count)| {
        let then = before.narrowed.get(rule).copied().unwrap_or(0.0);
        (rule.clone(), count - then)
    });
    Counted {
        requests: now.requests - before.requests,
        narrowed: narrowed.collect(),
    }
}

impl Cgroup {
    fn add(&mut self, line: &Value) {
        let look = |part: &Value, whole: &Value| {
            let (part, whole) = (number(part)?, number(whole)?);
            Some(Look { part, whole })
        };
        self.coverage
            .extend(look(&line["anon_thp_bytes"], &line["memory_bytes"]));
        self.stall
            .extend(look(&line["stall_ms"], &line["elapsed_ms"]));
        if let Some(pressure) = line["pressure"].as_bool() {
            self.pressure.push(Look {
                part: f64::from(u8::from(pressure)),
                whole: 1.0,
            });
        }
    }

    /// Adds up what another one has counted, look by look.
    fn add_counts(&mut self, reason: &'static str, at: usize, more: &Counted) {
        let looks = self.counted.entry(reason).or_default();
        looks.resize(looks.len().max(at + 1), Counted::default());
        looks[at].requests += more.requests;
        for (rule, count) in &more.narrowed {
            *looks[at].narrowed.entry(rule.clone()).or_default() += count;
        }
    }

    /// The rules that have narrowed for a reason.
    fn rules(&self, reason: &str) -> BTreeSet<String> {
        let looks = self.counted.get(reason).into_iter().flatten();
        looks.flat_map(|one| one.narrowed.keys().cloned()).collect()
    }

    /// What there is to compare.
    fn all(&self) -> BTreeSet<Of> {
        let mut all = BTreeSet::from([Of::HugeCoverage, Of::Stall, Of::Pressure]);
        for &reason in self.counted.keys() {
            all.insert(Of::Narrowed { reason, rule: None });
            let rules = self.rules(reason).into_iter().map(Some);
            all.extend(rules.map(|rule| Of::Narrowed { reason, rule }));
        }
        all
    }

    /// Is the figure of these two another one again?  What any rule narrowed is what the only one
    /// did, and counts once.
    fn repeats(&self, other: &Self, of: &Of) -> bool {
        match of {
            Of::Narrowed { reason, rule: None } => {
                self.rules(reason).union(&other.rules(reason)).count() == 1
            }
            _ => false,
        }
    }

    fn figure(&self, of: &Of) -> Option<Figure> {
        match of {
            Of::HugeCoverage => Figure::of(Kind::Gauge, &self.coverage),
            Of::Stall => Figure::of(Kind::Gauge, &self.stall),
            Of::Pressure => Figure::of(Kind::State, &self.pressure),
            Of::Narrowed { reason, rule } => {
                let part = |one: &Counted| match rule {
                    Some(rule) => one.narrowed.get(rule).copied().unwrap_or(0.0),
                    None => one.narrowed.values().sum(),
                };
                let looks = self.counted.get(reason)?.iter().map(|one| Look {
                    part: part(one),
                    whole: one.requests,
                });
                Figure::of(Kind::Counter, &looks.collect::<Vec<_>>())
            }
        }
    }
}

impl Side {
    /// # Errors
    /// [`Error::Usage`] for a file that holds something else.
    fn read(file: &Path) -> Result<Self> {
        let name = shown::path(file);
        let wrong = |what: &str| {
            Error::Usage(format!(
                "cannot compare {name}: {what}. It takes what `mthp_ext status --json` prints, once or, with --watch, \
                 many times."
            ))
        };
        let text = fs::read_to_string(file).map_err(|e| wrong(&e.to_string()))?;
        let mut looks: Vec<Value> = Vec::new();
        let mut answers = serde_json::Deserializer::from_str(&text).into_iter();
        while let Some(answer) = answers.next() {
            let answer: Value = answer.map_err(|e| match (e.is_eof(), looks.len()) {
                // Of a writer that was killed, or a full disk.
                (true, before @ 1..) => wrong(&format!(
                    "line {}: the answer there is cut off. Delete it, and the {before} before it count",
                    e.line()
                )),
                _ => wrong(&e.to_string()),
            })?;
            if !answer["cgroups"].is_array() || !answer["policies"].is_array() {
                let before = &text[..answers.byte_offset()];
                let line = before.lines().count();
                return Err(wrong(&format!("line {line}: JSON of another kind")));
            }
            looks.push(answer);
        }
        if looks.is_empty() {
            return Err(wrong("it is empty"));
        }
        Ok(Self::of(name, looks))
    }

    fn of(file: String, looks: Vec<Value>) -> Self {
        let mut cgroups: BTreeMap<String, Cgroup> = BTreeMap::new();
        let mut before: BTreeMap<(String, &str), Counted> = BTreeMap::new();
        for (at, look) in looks.iter().enumerate() {
            for line in look["cgroups"].as_array().into_iter().flatten() {
                let Some(name) = line["cgroup"].as_str() else {
                    continue;
                };
                cgroups.entry(name.to_owned()).or_default().add(line);
                for reason in Reason::ALL.map(Reason::name) {
                    let now = counted(line, reason);
                    let then = before.insert((name.to_owned(), reason), now.clone());
                    let more = since(&now, then.as_ref());
                    // With several looks, what was before the first is of another time.
                    let (skip, asks) = (then.is_none() && looks.len() > 1, more.requests > 0.0);
                    if skip || !asks {
                        continue;
                    }
                    for name in [name, ALL] {
                        let cgroup = cgroups.entry(name.to_owned()).or_default();
                        cgroup.add_counts(reason, at, &more);
                    }
                }
            }
        }
        Side {
            file,
            looks,
            cgroups,
        }
    }

    /// The last answer.
    fn last(&self) -> &Value {
        self.looks.last().unwrap_or(&Value::Null)
    }

    /// What is no figure: settings and policies.
    fn facts(&self) -> BTreeMap<String, Value> {
        let last = self.last();
        let setting = "transparent_hugepage/enabled".to_owned();
        let mut facts = BTreeMap::from([(setting, last["thp"].clone())]);
        for policy in last["policies"].as_array().into_iter().flatten() {
            let root = policy["root"].as_str().unwrap_or_default();
            for key in ["policy", "dry_run", "own_file", "own_object", "rules"] {
                facts.insert(format!("{root}: {key}"), policy[key].clone());
            }
            for (key, value) in policy["settings"].as_object().into_iter().flatten() {
                facts.insert(format!("{root}: {key}"), value.clone());
            }
        }
        for line in last["cgroups"].as_array().into_iter().flatten() {
            let name = line["cgroup"].as_str().unwrap_or_default();
            if line["profiles"]
                .as_array()
                .is_some_and(|all| !all.is_empty())
            {
                facts.insert(format!("{name}: profiles"), line["profiles"].clone());
            }
        }
        facts
    }

    /// Names of its cgroups that the other one has not.
    fn without(&self, other: &Self) -> Vec<String> {
        let names = self.cgroups.keys();
        names
            .filter(|name| *name != ALL && !other.cgroups.contains_key(*name))
            .cloned()
            .collect()
    }
}

fn compare(before: &Side, after: &Side) -> Report {
    let (then, now) = (before.facts(), after.facts());
    let keys: BTreeSet<&String> = then.keys().chain(now.keys()).collect();
    let value =
        |of: &BTreeMap<String, Value>, key: &String| of.get(key).cloned().unwrap_or(Value::Null);
    let differs = keys.into_iter().map(|key| Differs {
        what: key.clone(),
        before: value(&then, key),
        after: value(&now, key),
    });
    let mut report = Report {
        sides: [before, after].map(|side| Source {
            file: side.file.clone(),
            looks: side.looks.len(),
        }),
        differs: differs.filter(|one| one.before != one.after).collect(),
        changes: Vec::new(),
        compared: 0,
        only_before: before.without(after),
        only_after: after.without(before),
    };
    let mut both = Vec::new();
    for (name, one) in &before.cgroups {
        let Some(other) = after.cgroups.get(name) else {
            continue;
        };
        for of in one.all().union(&other.all()) {
            if one.repeats(other, of) {
                continue;
            }
            if let (Some(then), Some(now)) = (one.figure(of), other.figure(of)) {
                both.push((name, of.clone(), then, now));
            }
        }
    }
    report.compared = both.len();
    let chances: Vec<f64> = both.iter().map(|(.., one, two)| one.chance(two)).collect();
    let bar = compare::bar(&chances);
    for (name, of, then, now) in both {
        if compare::differ(&then, &now, bar) {
            report.changes.push(Change {
                cgroup: name.clone(),
                of,
                before: then.value,
                after: now.value,
                noise: then.noise(&now, bar),
            });
        }
    }
    // The whole first, then what has moved most.
    let moved = |change: &Change| (change.after - change.before).abs();
    report.changes.sort_by(|one, other| {
        let whole = |change: &Change| change.cgroup != ALL;
        let by_size = moved(other).total_cmp(&moved(one));
        whole(one).cmp(&whole(other)).then(by_size)
    });
    report
}

fn looks(count: usize) -> String {
    match count {
        1 => "1 look".to_owned(),
        _ => format!("{count} looks"),
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => shown::shown(text.as_bytes()),
        other => shown::shown(other.to_string().as_bytes()),
    }
}

fn text(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let [before, after] = &report.sides;
    writeln!(
        out,
        "before: {} ({}); after: {} ({})",
        before.file,
        looks(before.looks),
        after.file,
        looks(after.looks)
    )?;
    if !report.differs.is_empty() {
        writeln!(out, "\nsettings and policies that are not the same:")?;
        let mut rows = vec![["WHAT", "BEFORE", "AFTER"].map(str::to_owned)];
        rows.extend(report.differs.iter().map(|one| {
            [
                shown::shown(one.what.as_bytes()),
                plain(&one.before),
                plain(&one.after),
            ]
        }));
        table::print(&rows, &(0..0), out)?;
    }
    let changes = &report.changes;
    if report.compared == 0 {
        // The error that follows says so.
    } else if changes.is_empty() {
        writeln!(
            out,
            "\nno figure of {} has changed by more than its noise and {} points",
            report.compared,
            100.0 * LEAST
        )?;
    } else {
        writeln!(
            out,
            "\nchanged by more than noise: {} of {} figures ({} % of such by chance)",
            changes.len(),
            report.compared,
            100.0 * CHANCE
        )?;
        let head = ["CGROUP", "FIGURE", "BEFORE", "AFTER", "NOISE"];
        let mut rows = vec![head.map(str::to_owned)];
        rows.extend(changes.iter().map(|one| {
            [
                shown::shown(one.cgroup.as_bytes()),
                one.of.text(),
                percent(one.before),
                percent(one.after),
                percent(one.noise),
            ]
        }));
        table::print(&rows, &(2..5), out)?;
    }
    for (names, when) in [
        (&report.only_before, "before"),
        (&report.only_after, "after"),
    ] {
        if !names.is_empty() {
            let names: Vec<String> = names.iter().map(|n| shown::shown(n.as_bytes())).collect();
            let (count, first) = (names.len(), &names[..names.len().min(5)]);
            let more = if count > 5 { ", ..." } else { "" };
            writeln!(
                out,
                "\nthere {when} only: {count}: {}{more}",
                first.join(", ")
            )?;
        }
    }
    Ok(())
}

/// The command; the exit code.
///
/// # Errors
/// If a file cannot be used, the two have nothing in common, or the answer cannot be written.
pub fn main(args: &CompareArgs) -> Result<u8> {
    let report = compare(&Side::read(&args.before)?, &Side::read(&args.after)?);
    print::print(&report, args.json, text)?;
    if report.compared == 0 {
        let [before, after] = report.sides.map(|side| side.file);
        return Err(Error::NothingToCompare { before, after });
    }
    let same = report.changes.is_empty() && report.differs.is_empty();
    Ok(if same { 0 } else { CHANGED })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::shown::tests::HOSTILE;

    /// An answer: a service with so many requests, of which so many were narrowed by `small`.
    fn look(requests: u64, narrowed: u64, more: &Value) -> Value {
        let mut line = json!({
            "cgroup": "/a", "requests": {"fault": requests}, "narrowed": {"fault": {"small": narrowed}},
            "anon_thp_bytes": 50 << 20, "memory_bytes": 100 << 20, "pressure": false,
            "stall_ms": 1, "elapsed_ms": 1000, "profiles": [],
        });
        for (key, value) in more.as_object().unwrap() {
            line[key] = value.clone();
        }
        let settings = json!({"min_memory_bytes": 8 << 20});
        let policy =
            json!({"policy": "default", "root": "/", "dry_run": false, "settings": settings});
        json!({"thp": "always", "policies": [policy], "cgroups": [line]})
    }

    /// Looks whose counters grow by 10,000, `percent` of them narrowed, more or less.
    fn watched(percent: u64, more: &Value) -> Side {
        let (mut requests, mut narrowed, mut all) = (5_000_000, 4_000_000, Vec::new());
        for at in 0..60 {
            all.push(look(requests, narrowed, more));
            requests += 10_000;
            narrowed += 100 * percent + 40 * (at % 3);
        }
        Side::of("f".to_owned(), all)
    }

    fn said(report: &Report) -> String {
        let mut out = Vec::new();
        text(report, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn changed(report: &Report) -> Vec<(&str, String)> {
        let all = report.changes.iter();
        all.map(|one| (one.cgroup.as_str(), one.of.text()))
            .collect()
    }

    #[test]
    fn two_that_are_alike_have_no_change() {
        let report = compare(&watched(20, &json!({})), &watched(21, &json!({})));
        assert_eq!(changed(&report), []);
        assert_eq!(report.differs, []);
        assert!(report.compared >= 5, "{}", report.compared);
        assert!(said(&report).contains("no figure of "), "{}", said(&report));
    }

    /// What was counted before the first look would hide it: 80 % of five million.
    #[test]
    fn what_is_narrowed_between_the_looks_is_compared() {
        let report = compare(&watched(20, &json!({})), &watched(60, &json!({})));
        let all = changed(&report);
        let wanted = |cgroup| (cgroup, "fault: narrowed by small".to_owned());
        assert!(
            all.contains(&wanted("/a")) && all.contains(&wanted(ALL)),
            "{all:?}"
        );
        assert_eq!(all[0].0, ALL);
        let first = &report.changes[0];
        assert!((first.before - 0.204).abs() < 0.002, "{first:?}");
        assert!((first.after - 0.604).abs() < 0.002, "{first:?}");
        assert!(said(&report).contains("20.4 %"), "{}", said(&report));
    }

    #[test]
    fn a_daemon_that_began_anew_has_its_counters_from_zero() {
        let looks = vec![look(9000, 9000, &json!({})), look(1000, 100, &json!({}))];
        let side = Side::of("f".to_owned(), looks);
        let counts = &side.cgroups["/a"].counted["fault"];
        assert_eq!(counts[1].requests, 1000.0);
        assert_eq!(counts[1].narrowed["small"], 100.0);
    }

    /// One look each: all that was counted since the policy was loaded.
    #[test]
    fn one_look_will_do_for_counters() {
        let side = |narrowed| Side::of("f".to_owned(), vec![look(1_000_000, narrowed, &json!({}))]);
        let report = compare(&side(200_000), &side(600_000));
        let wanted = [ALL, "/a"].map(|one| (one, "fault: narrowed by small".to_owned()));
        assert_eq!(changed(&report), wanted);
        assert_eq!(changed(&compare(&side(200_000), &side(203_000))), []);
    }

    /// The sum of one rule is that rule.
    #[test]
    fn what_several_rules_narrowed_is_a_figure_of_its_own() {
        let side = |room: u64| {
            let rules = json!({"fault": {"small": 200_000, "room": room}});
            Side::of(
                "f".to_owned(),
                vec![look(1_000_000, 0, &json!({"narrowed": rules}))],
            )
        };
        let report = compare(&side(100_000), &side(400_000));
        let mut found = changed(&report);
        found.sort();
        let texts = ["fault: narrowed", "fault: narrowed by room"];
        let wanted = ["/a", ALL].map(|one| texts.map(|text| (one, text.to_owned())));
        assert_eq!(found, wanted.concat());
    }

    #[test]
    fn gauges_are_compared_too() {
        let (huge, stalled) = (
            json!({"anon_thp_bytes": 90 << 20}),
            json!({"stall_ms": 300, "pressure": true}),
        );
        let report = compare(&watched(20, &json!({})), &watched(20, &huge));
        assert_eq!(
            changed(&report),
            [("/a", "memory in huge pages".to_owned())]
        );
        let report = compare(&watched(20, &json!({})), &watched(20, &stalled));
        let texts: Vec<String> = changed(&report).into_iter().map(|(_, text)| text).collect();
        assert_eq!(texts, ["looks under pressure", "time stalled on memory"]);
        // Unknown is not 0.
        let unknown = json!({"memory_bytes": null, "stall_ms": null});
        let report = compare(&watched(20, &unknown), &watched(20, &huge));
        assert_eq!(changed(&report), []);
    }

    #[test]
    fn settings_and_policies_are_named() {
        let mut other = look(1, 0, &json!({"profiles": ["database"]}));
        other["policies"][0]["settings"]["min_memory_bytes"] = json!(1);
        other["policies"][0]["dry_run"] = json!(true);
        other["thp"] = json!("madvise");
        let side = |look| Side::of("f".to_owned(), vec![look]);
        let report = compare(&side(look(1, 0, &json!({}))), &side(other));
        let names: Vec<&str> = report.differs.iter().map(|one| one.what.as_str()).collect();
        let wanted = [
            "/: dry_run",
            "/: min_memory_bytes",
            "/a: profiles",
            "transparent_hugepage/enabled",
        ];
        assert_eq!(names, wanted);
    }

    #[test]
    fn cgroups_of_one_side_are_named_and_harmless() {
        let name = String::from_utf8_lossy(HOSTILE).into_owned();
        let mut other = look(1, 0, &json!({}));
        other["cgroups"][0]["cgroup"] = json!(name);
        let side = |look| Side::of("f".to_owned(), vec![look]);
        let report = compare(&side(look(1, 0, &json!({}))), &side(other));
        assert_eq!(report.only_before, ["/a"]);
        let text = said(&report);
        assert!(text.contains("there before only: 1: /a\n"), "{text}");
        assert!(!text.replace('\n', "").contains(char::is_control), "{text}");
    }

    #[test]
    fn what_is_no_answer_of_status_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.json");
        for text in ["", "{", "[]", "{\"cgroups\": []}", "metrics"] {
            fs::write(&file, text).unwrap();
            let error = Side::read(&file).map(|_| ()).unwrap_err();
            assert_eq!(error.code(), 2, "{text}");
            assert!(error.to_string().contains("a.json"), "{error}");
        }
        assert_eq!(
            Side::read(Path::new("/none"))
                .map(|_| ())
                .unwrap_err()
                .code(),
            2
        );
        let lines = format!("{}\n{}\n", look(1, 0, &json!({})), look(2, 0, &json!({})));
        fs::write(&file, &lines).unwrap();
        assert_eq!(Side::read(&file).unwrap().looks.len(), 2);
        let refused = |text: &str| {
            fs::write(&file, text).unwrap();
            Side::read(&file).map(|_| ()).unwrap_err().to_string()
        };
        // Wherever it was cut, but at the end of an answer.
        for less in [2, 30, 200] {
            let said = refused(&lines[..lines.len() - less]);
            assert!(
                said.contains("line 2: ") && said.contains("cut off"),
                "{said}"
            );
        }
        let said = refused(&format!("{lines}{{\"cgroups\": 1}}\n"));
        assert!(said.contains("line 3: "), "{said}");
    }

    /// Four looks at a cgroup, each at one request, say nothing.
    #[test]
    fn a_request_per_look_is_no_change() {
        let side = |narrowed: u64| {
            let looks = (0..5).map(|at| look(at, at * narrowed, &json!({})));
            Side::of("f".to_owned(), looks.collect())
        };
        assert_eq!(changed(&compare(&side(0), &side(1))), []);
    }

    #[test]
    fn files_with_nothing_in_common_are_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, answer: &Value| {
            let path = dir.path().join(name);
            fs::write(&path, answer.to_string()).unwrap();
            path
        };
        let nobody = json!({"thp": "always", "policies": [], "cgroups": []});
        let before = file("before", &look(1_000_000, 5, &json!({})));
        let after = file("after", &nobody);
        let args = CompareArgs {
            before,
            after,
            json: true,
        };
        let error = main(&args).unwrap_err();
        assert_eq!(error.code(), 20, "{error}");
        // The sum of all is no cgroup of one side.
        let side = |look: &Value| Side::of("f".to_owned(), vec![look.clone()]);
        let report = compare(&side(&look(1_000_000, 5, &json!({}))), &side(&nobody));
        assert_eq!(
            (report.only_before, report.compared),
            (vec!["/a".to_owned()], 0)
        );
    }

    #[test]
    fn every_key_is_on_the_page() {
        let report = compare(
            &watched(20, &json!({})),
            &watched(60, &json!({"profiles": ["a"]})),
        );
        assert!(!report.differs.is_empty() && !report.changes.is_empty());
        let answer = serde_json::to_value(report).unwrap();
        assert_eq!(print::undocumented(&answer), [""; 0]);
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! The dashboard and the alerts: each expression refers to metrics and labels that there are, and
//! promtool, where it is installed, takes and tests them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed step fails the test"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use mthp_ext::model::metrics::{METRICS, Metric, PREFIX};
use serde_json::Value;

const PACKAGING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging");
const DASHBOARD: &str = include_str!("../packaging/grafana/mthp_ext.json");
const RULES: &str = include_str!("../packaging/prometheus/mthp_ext.rules.yml");

const FLEET: &str = include_str!("../packaging/prometheus/mthp_ext.fleet.yml");

/// What the rules for the fleet take of the node exporter, which runs beside it.
const OF_THE_NODE: [&str; 4] = [
    "node_memory_AnonHugePages_bytes",
    "node_memory_AnonPages_bytes",
    "node_mthp_ext_support_exit_code",
    "node_pressure_memory_stalled_seconds_total",
];

/// What Prometheus adds to each series.
const OF_THE_SCRAPE: [&str; 2] = ["instance", "job"];

/// Not on the dashboard, and why.
const LEFT_OUT: [(&str, &str); 3] = [
    (
        "mthp_ext_build_info",
        "no panel: it names the hosts to choose from",
    ),
    (
        "mthp_ext_size_requests_total",
        "no panel: for a look at one cgroup, which `explain` is for",
    ),
    ("mthp_ext_size_denied_total", "the same"),
];

/// The words of an expression: names, one mark each, and `"` for a text.
fn tokens(expression: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut chars = expression.chars().peekable();
    while let Some(c) = chars.next() {
        let mut token = c.to_string();
        if c == '"' {
            assert!(chars.any(|c| c == '"'), "an open text: {expression}");
        } else if c.is_ascii_alphanumeric() || "_$".contains(c) {
            while let Some(c) = chars.next_if(|c| c.is_ascii_alphanumeric() || "_:.".contains(*c)) {
                token.push(c);
            }
        } else if c.is_whitespace() {
            continue;
        }
        found.push(token);
    }
    found
}

fn metric(name: &str) -> Option<&'static Metric> {
    METRICS.iter().copied().find(|metric| metric.name() == name)
}

/// What an expression refers to.
#[derive(Debug, Default)]
struct Refers {
    metrics: BTreeSet<String>,
    /// What there is not.
    unknown: Vec<String>,
}

impl Refers {
    fn knows(&self, label: &str) -> bool {
        let mut metrics = self.metrics.iter().filter_map(|name| metric(name));
        OF_THE_SCRAPE.contains(&label) || metrics.any(|metric| metric.labels.contains(&label))
    }

    /// Labels must be those of one of the metrics that were named.
    fn labels<'a>(&mut self, labels: impl IntoIterator<Item = &'a str>) {
        for label in labels {
            if !self.knows(label) {
                self.unknown.push(format!("label {label}"));
            }
        }
    }
}

/// Words that are neither metric nor label.
const WORDS: [&str; 17] = [
    "and",
    "avg",
    "bool",
    "bottomk",
    "by",
    "count",
    "group_left",
    "ignoring",
    "max",
    "min",
    "on",
    "or",
    "rate",
    "sum",
    "topk",
    "unless",
    "without",
];

fn refers(expression: &str) -> Refers {
    let tokens = tokens(expression);
    let mut found = Refers::default();
    let (mut groups, mut at) = (Vec::new(), 0);
    // Names from the mark that opens to the one that closes.
    let list = |at: usize, close: &str| -> Vec<String> {
        let inside = tokens[at..]
            .iter()
            .skip(1)
            .take_while(|token| *token != close);
        let name =
            |token: &&String| token.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
        inside.filter(name).cloned().collect()
    };
    while at < tokens.len() {
        let token = tokens[at].as_str();
        let next = tokens.get(at + 1).map_or("", String::as_str);
        at += 1;
        if matches!(token, "by" | "on" | "ignoring" | "group_left" | "without") && next == "(" {
            groups.extend(list(at, ")"));
            at += tokens[at..].iter().position(|token| token == ")").unwrap();
        } else if WORDS.contains(&token)
            || OF_THE_NODE.contains(&token)
            || !token.starts_with(|c: char| c.is_ascii_lowercase())
        {
        } else if token == "up" || metric(token).is_some() {
            let labels = metric(token).map_or(&[][..], |metric| metric.labels);
            if token != "up" {
                found.metrics.insert(token.to_owned());
            }
            if next == "{" {
                for label in list(at, "}") {
                    if !labels.contains(&&*label) && !OF_THE_SCRAPE.contains(&&*label) {
                        found.unknown.push(format!("label {label} of {token}"));
                    }
                }
                at += tokens[at..].iter().position(|token| token == "}").unwrap();
            } else if next == "[" {
                at += 2;
            }
        } else {
            found.unknown.push(format!("metric {token}"));
        }
    }
    found.labels(groups.iter().map(String::as_str));
    found
}

/// Names between two marks in a template.
fn named<'a>(text: &'a str, before: &str) -> Vec<&'a str> {
    let after = text.split(before).skip(1);
    let end = |c: char| !c.is_ascii_alphanumeric() && c != '_';
    after
        .map(|rest| rest.split(end).next().unwrap_or_default())
        .collect()
}

/// All expressions of the dashboard, with the legends of each.
fn panels() -> Vec<(String, String)> {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let mut found = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            found.push((text(&target["expr"]), text(&target["legendFormat"])));
        }
    }
    found
}

/// Names and expressions of the rules that record.
fn records() -> Vec<(String, String)> {
    let of = |key: &str| -> Vec<String> {
        let lines = FLEET
            .lines()
            .map(|line| line.trim().trim_start_matches("- "));
        let values = lines.filter_map(|line| line.strip_prefix(key));
        values.map(str::to_owned).collect()
    };
    let (names, expressions) = (of("record: "), of("expr: "));
    assert_eq!(names.len(), expressions.len());
    names.into_iter().zip(expressions).collect()
}

/// Expressions of the alerts, with what they say.
fn alerts() -> Vec<(String, String)> {
    let of = |key: &str| -> Vec<String> {
        let lines = RULES
            .lines()
            .filter_map(|line| line.trim().strip_prefix(key));
        lines.map(str::to_owned).collect()
    };
    let (expressions, summaries) = (of("expr: "), of("summary: "));
    assert_eq!(expressions.len(), summaries.len());
    expressions.into_iter().zip(summaries).collect()
}

#[test]
fn the_dashboard_refers_to_what_there_is() {
    let mut shown = BTreeSet::new();
    for (expression, legend) in panels() {
        let mut refers = refers(&expression);
        refers.labels(named(&legend, "{{"));
        assert_eq!(refers.unknown, [""; 0], "{expression}; {legend}");
        // Of several hosts each is told from the others.
        assert!(
            expression.contains("{instance=~\"$instance\""),
            "{expression}"
        );
        assert!(legend.contains("{{instance}}"), "{legend}");
        shown.extend(refers.metrics);
    }
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let variables = dashboard["templating"]["list"].to_string();
    assert!(variables.contains("label_values(mthp_ext_build_info, instance)"));
    let left_out: BTreeSet<String> = LEFT_OUT
        .iter()
        .map(|(name, _)| (*name).to_owned())
        .collect();
    let all: BTreeSet<String> = METRICS.iter().map(|metric| metric.name()).collect();
    assert!(shown.is_disjoint(&left_out));
    assert_eq!(
        &shown | &left_out,
        all,
        "each is shown, or left out for a reason"
    );
}

#[test]
fn alerts_refer_to_what_there_is() {
    let alerts = alerts();
    assert!(alerts.len() > 5);
    for (expression, summary) in alerts {
        let mut refers = refers(&expression);
        refers.labels(named(&summary, "$labels."));
        assert_eq!(refers.unknown, [""; 0], "{expression}; {summary}");
    }
}

/// A rule's name begins with the labels that are left, as Prometheus' own advice has it.
#[test]
fn the_rules_for_a_fleet_refer_to_what_there_is() {
    let records = records();
    assert!(records.len() > 5);
    for (name, expression) in records {
        assert_eq!(refers(&expression).unknown, [""; 0], "{expression}");
        let level = name.split(':').next().unwrap().replace('_', ", ");
        let by = |level: &str| expression.contains(&format!(" by ({level}) "));
        let one_host = level == "instance" && !expression.contains(" by ");
        let first = level.split(", ").next().unwrap();
        assert!(
            by(&level) || one_host || expression.contains(&format!(" by ({first}, ")),
            "{name}"
        );
    }
}

#[test]
fn what_there_is_not_is_found() {
    let unknown = |expression: &str| refers(expression).unknown;
    assert_eq!(unknown("mthp_ext_magic > 0"), ["metric mthp_ext_magic"]);
    assert_eq!(
        unknown("sum by (rule) (mthp_ext_pressure{rule=\"x\"})"),
        ["label rule of mthp_ext_pressure", "label rule"]
    );
    assert_eq!(unknown("rate(mthp_ext_scans_total[5m]) == 0"), [""; 0]);
    assert_eq!(
        unknown("mthp_ext_pressure{instance=~\"$instance\",cgroup=\"a\"}"),
        [""; 0]
    );
    let mut refers = refers("mthp_ext_pressure");
    refers.labels(named("{{cgroup}} {{rule}}", "{{"));
    assert_eq!(refers.unknown, ["label rule"]);
}

/// Runs promtool, and says what it said where it fails; a line that says so, where there is none.
fn promtool(args: &[&str], file: &Path) {
    let directory = file.parent().unwrap();
    let run = Command::new("promtool")
        .args(args)
        .arg(file)
        .current_dir(directory)
        .output();
    match run {
        Ok(out) => assert!(out.status.success(), "{args:?}: {out:?}"),
        // The package prometheus has it; few machines do.
        Err(error) => println!("skipped: promtool does not run here: {error}"),
    }
}

#[test]
fn promtool_takes_the_rules_and_runs_their_tests() {
    let rules = Path::new(PACKAGING).join("prometheus");
    for (check, name) in [
        ("check", "rules.yml"),
        ("test", "tests.yml"),
        ("check", "fleet.yml"),
        ("test", "fleet.tests.yml"),
    ] {
        promtool(&[check, "rules"], &rules.join(format!("{PREFIX}.{name}")));
    }
}

/// As rules that record, with values for what Grafana fills in.
#[test]
fn promtool_takes_the_expressions_of_the_dashboard() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("dashboard.rules.yml");
    let mut text = "groups:\n- name: dashboard\n  rules:\n".to_owned();
    for (at, (expression, _)) in panels().into_iter().enumerate() {
        let expression = expression
            .replace("$__rate_interval", "5m")
            .replace("$instance", ".*");
        text += &format!("  - {{record: 'p{at}', expr: '{expression}'}}\n");
    }
    assert!(!text.contains('$'), "{text}");
    fs::write(&file, text).unwrap();
    promtool(&["check", "rules"], &file);
}

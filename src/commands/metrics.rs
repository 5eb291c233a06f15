// SPDX-License-Identifier: GPL-2.0-only
//! `mthp_ext metrics` and docs/metrics.md: the table of what `run --metrics` serves.

use std::io::{self, Write};

use schemars::JsonSchema;
use serde::Serialize;

use super::args::OptionsArgs;
use crate::errors::{Error, Result};
use crate::model::abi::SIZES;
use crate::model::metrics::{LEAST_SERIES, METRICS, MOST_CGROUPS, MOST_SERIES, NARROWED};
use crate::output::print;

/// A metric as it is shown.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Shown {
    metric: String,
    kind: &'static str,
    unit: Option<&'static str>,
    labels: &'static [&'static str],
    about: &'static str,
}

fn all() -> Vec<Shown> {
    let shown = METRICS.iter().map(|metric| Shown {
        metric: metric.name(),
        kind: metric.kind.name(),
        unit: metric.unit.map(|unit| unit.name()),
        labels: metric.labels,
        about: metric.help,
    });
    shown.collect()
}

fn text(all: &Vec<Shown>, out: &mut impl Write) -> io::Result<()> {
    for one in all {
        let labels = match one.labels {
            [] => String::new(),
            labels => format!("; by {}", labels.join(", ")),
        };
        let unit = one
            .unit
            .map_or_else(String::new, |unit| format!(" of {unit}"));
        let (metric, kind, about) = (&one.metric, one.kind, one.about);
        writeln!(out, "{metric}: {kind}{unit}{labels}\n    {about}")?;
    }
    Ok(())
}

/// The page.
fn page() -> String {
    let rows = all().into_iter().map(|one| {
        let labels: Vec<String> = one
            .labels
            .iter()
            .map(|label| format!("`{label}`"))
            .collect();
        let (name, kind, about) = (one.metric, one.kind, one.about);
        format!("| `{name}` | {kind} | {} | {about} |\n", labels.join(", "))
    });
    format!(
        "<!-- SPDX-License-Identifier: GPL-2.0-only -->\n\
         <!-- Made by `mthp_ext metrics --markdown` from the table in src/model/metrics.rs. -->\n\
         # Metrics\n\n\
         What `mthp_ext run --metrics ADDRESS` serves at `/metrics`, in the format OpenMetrics 1.0.\n\
         [Operations](operations.md#metrics) has the addresses, and how to scrape. Reasons, rules and cgroups have the\n\
         names that [`status`](use.md#status) gives them. Only cgroups that have asked for a folio are served, and of\n\
         those the {MOST_CGROUPS} that have asked the most. The counters of a cgroup end with it, and begin anew with the\n\
         policy. They are exact.\n\n\
         A cgroup is {LEAST_SERIES} to {MOST_SERIES} series: {LEAST_SERIES}, one each for room and memory where they count, one of\n\
         `{}` for each pair of reason and rule that has narrowed, and two for each further\n\
         size that a reason has asked for, of at most {SIZES}. {MOST_CGROUPS} cgroups are {} at most.\n\n\
         | metric | type | labels | what it is |\n|---|---|---|---|\n{}",
        NARROWED.name(),
        MOST_CGROUPS * MOST_SERIES,
        rows.collect::<String>()
    )
}

/// The command.
///
/// # Errors
/// If it cannot be written.
pub fn main(args: &OptionsArgs) -> Result<()> {
    if args.markdown {
        let written = io::stdout().lock().write_all(page().as_bytes());
        return written.map_err(|source| Error::Output { source });
    }
    print::rows(&all(), args.json, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_the_table() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md");
        let written = std::fs::read_to_string(file).unwrap_or_default();
        let made = page();
        assert!(
            written == made,
            "run `mthp_ext metrics --markdown > docs/metrics.md`"
        );
    }

    #[test]
    fn each_metric_has_its_lines() {
        let mut out = Vec::new();
        text(&all(), &mut out).unwrap();
        let out = String::from_utf8(out).unwrap();
        assert_eq!(out.lines().count(), 2 * METRICS.len());
        let line = "mthp_ext_narrowed_total: counter; by cgroup, reason, rule\n";
        assert!(out.contains(line), "{out}");
        let line = "mthp_ext_room_bytes: gauge of bytes; by cgroup\n";
        assert!(out.contains(line), "{out}");
    }

    #[test]
    fn every_key_is_on_the_page() {
        let answer = serde_json::to_value(all()).unwrap();
        assert_eq!(print::undocumented(&answer), [""; 0]);
    }
}

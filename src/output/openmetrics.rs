// SPDX-License-Identifier: GPL-2.0-only
//! What a policy does, as metrics in the format OpenMetrics 1.0.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use crate::model::abi::{self, Explained, NO_LIMIT};
use crate::model::counts::{self, BySize};
use crate::model::metrics::{self, Kind, MOST_CGROUPS, Metric, PREFIX};
use crate::model::orders::Sizes;
use crate::model::reason::Reason;
use crate::model::rule::Rule;

/// The content type of the format.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What is counted since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Scans.
    pub scans: u64,
    /// What they took, in nanoseconds.
    pub scan_ns: u64,
    /// Changed decisions that were printed.
    pub reported: u64,
    /// Requests whose changed decision was not.
    pub suppressed: u64,
}

/// What was put into force last.
#[derive(Clone, Debug, Default)]
pub struct InForce {
    /// Name of the policy of the root.
    pub policy: String,
    /// It narrows nothing.
    pub dry_run: bool,
    /// A configuration was read later, and is not in force.
    pub config_refused: bool,
    /// Parts of the configuration that are left out.
    pub config_left_out: usize,
}

/// What is served at one moment.
#[derive(Debug)]
pub struct Snapshot {
    /// What is in force.
    pub in_force: InForce,
    /// The cgroup that it is attached to.
    pub root: String,
    /// What the machine has.
    pub sizes: Sizes,
    /// What is counted.
    pub counts: Counts,
    /// By name; see [`Cgroups`].
    pub cgroups: Cgroups,
}

/// Those that have asked, by name.
#[derive(Default)]
pub struct Cgroups {
    by_name: BTreeMap<String, Explained>,
    left_out: usize,
    unread: usize,
}

impl fmt::Debug for Cgroups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_name.keys()).finish()
    }
}

/// Requests of all reasons.
fn requests(explained: &Explained) -> u64 {
    let each = Reason::ALL.into_iter();
    each.map(|reason| counts::requests(explained, reason)).sum()
}

impl Cgroups {
    /// Of all that there are, the [`MOST_CGROUPS`] that have asked the most.  `unread` could not be
    /// read or listed.
    pub fn new(all: impl IntoIterator<Item = (String, Explained)>, unread: usize) -> Self {
        let mut all: Vec<(String, Explained)> = all
            .into_iter()
            .filter(|(_, explained)| requests(explained) != 0)
            .collect();
        let left_out = all.len().saturating_sub(MOST_CGROUPS);
        if left_out != 0 {
            all.sort_by_key(|(_, explained)| std::cmp::Reverse(requests(explained)));
            all.truncate(MOST_CGROUPS);
        }
        Cgroups {
            // Two of one name, if any are shown alike, are one series: the format allows no other.
            by_name: all.into_iter().collect(),
            left_out,
            unread,
        }
    }
}

/// A value of a sample.
enum Number {
    Whole(u64),
    Broken(f64),
}

impl From<u64> for Number {
    fn from(whole: u64) -> Self {
        Number::Whole(whole)
    }
}

/// Writes the samples of one metric.
struct Samples<'a> {
    metric: &'static Metric,
    encoder: MetricEncoder<'a>,
}

impl Samples<'_> {
    /// One sample; `labels` are the values of the metric's.
    fn add(&mut self, labels: &[&str], value: impl Into<Number>) -> fmt::Result {
        let named: Vec<(&str, &str)> = self
            .metric
            .labels
            .iter()
            .copied()
            .zip(labels.iter().copied())
            .collect();
        let mut encoder = match (self.metric.kind, named.as_slice()) {
            (Kind::Info, _) => return self.encoder.encode_info(&named),
            (_, []) => return one(&mut self.encoder, self.metric.kind, &value.into()),
            _ => self.encoder.encode_family(&named)?,
        };
        one(&mut encoder, self.metric.kind, &value.into())
    }
}

fn one(encoder: &mut MetricEncoder<'_>, kind: Kind, value: &Number) -> fmt::Result {
    match (kind, value) {
        (Kind::Counter, Number::Whole(value)) => {
            encoder.encode_counter::<NoLabelSet, u64, u64>(value, None)
        }
        (Kind::Counter, Number::Broken(value)) => {
            encoder.encode_counter::<NoLabelSet, f64, u64>(value, None)
        }
        (_, Number::Whole(value)) => encoder.encode_gauge(value),
        (_, Number::Broken(value)) => encoder.encode_gauge(value),
    }
}

impl Snapshot {
    /// The samples of one metric.
    fn samples(&self, metric: &'static Metric, out: &mut Samples<'_>) -> fmt::Result {
        let (counts, in_force) = (&self.counts, &self.in_force);
        let whole = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        match metric {
            m if m == metrics::BUILD => {
                out.add(&[env!("CARGO_PKG_VERSION"), &abi::ABI.0.to_string()], 1)
            }
            m if m == metrics::POLICY => out.add(&[&in_force.policy, &self.root], 1),
            m if m == metrics::DRY_RUN => out.add(&[], u64::from(in_force.dry_run)),
            m if m == metrics::CONFIG_SUCCESSFUL => {
                out.add(&[], u64::from(!in_force.config_refused))
            }
            m if m == metrics::CONFIG_LEFT_OUT => out.add(&[], whole(in_force.config_left_out)),
            m if m == metrics::CGROUPS => out.add(&[], whole(self.cgroups.by_name.len())),
            m if m == metrics::CGROUPS_LEFT_OUT => out.add(&[], whole(self.cgroups.left_out)),
            m if m == metrics::CGROUPS_UNREAD => out.add(&[], whole(self.cgroups.unread)),
            m if m == metrics::SCANS => out.add(&[], counts.scans),
            m if m == metrics::SCAN_TIME => {
                let time = std::time::Duration::from_nanos(counts.scan_ns);
                out.add(&[], Number::Broken(time.as_secs_f64()))
            }
            m if m == metrics::REPORTED => out.add(&[], counts.reported),
            m if m == metrics::SUPPRESSED => out.add(&[], counts.suppressed),
            _ => {
                for (name, explained) in &self.cgroups.by_name {
                    of_cgroup(metric, name, explained, &self.sizes, out)?;
                }
                Ok(())
            }
        }
    }
}

/// The samples of one cgroup.
fn of_cgroup(
    metric: &'static Metric,
    name: &str,
    explained: &Explained,
    sizes: &Sizes,
    out: &mut Samples<'_>,
) -> fmt::Result {
    let now = &explained.now;
    for reason in Reason::ALL {
        let (at, word) = (reason as usize, reason.name());
        if metric == metrics::REQUESTS {
            out.add(&[name, word], counts::requests(explained, reason))?;
        } else if metric == metrics::OF_SIZE || metric == metrics::DENIED {
            for one in BySize::of(explained, reason).named(sizes) {
                let count = match metric == metrics::DENIED {
                    true => one.count.denied,
                    false => one.count.requests,
                };
                out.add(&[name, word, &one.size], count)?;
            }
        } else if metric == metrics::NARROWED {
            for rule in Rule::ALL {
                // Counters that have not begun are absent: most cgroups meet one rule or two.
                let count = explained.narrowed[at][rule as usize];
                if count != 0 {
                    out.add(&[name, word, rule.name()], count)?;
                }
            }
        } else if metric == metrics::ALLOWED {
            let largest = (now.decided[at].orders & sizes.of(reason))
                .checked_ilog2()
                .unwrap_or(0);
            out.add(&[name, word], 1u64 << (largest + sizes.page_shift))?;
        }
    }
    if metric == metrics::PRESSURE {
        out.add(&[name], u64::from(now.pressure != 0))
    } else if metric == metrics::UNMISSED {
        out.add(&[name], u64::from(now.unmissed != 0))
    } else if metric == metrics::ROOM && now.room_bytes != NO_LIMIT {
        out.add(&[name], now.room_bytes)
    } else if metric == metrics::MEMORY && now.memory_known != 0 {
        out.add(&[name], now.memory_bytes)
    } else {
        Ok(())
    }
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for metric in metrics::METRICS {
            let kind = match metric.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Info => MetricType::Info,
            };
            let unit = metric.unit.map(|unit| match unit {
                metrics::Unit::Bytes => Unit::Bytes,
                metrics::Unit::Seconds => Unit::Seconds,
            });
            let encoder =
                encoder.encode_descriptor(metric.stem, metric.help, unit.as_ref(), kind)?;
            self.samples(metric, &mut Samples { metric, encoder })?;
        }
        Ok(())
    }
}

/// The whole answer to a scrape.
///
/// # Errors
/// Never: it is written to memory.
pub fn text(snapshot: Snapshot) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(snapshot));
    let mut text = String::new();
    text::encode(&mut text, &registry)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::abi::{Decision, PUD_SIZE};
    use crate::model::metrics::METRICS;
    use crate::model::orders::X86;
    use crate::model::shown::tests::HOSTILE;

    /// A sample: name, labels, value.
    type Sample = (String, Vec<(String, String)>, f64);

    fn explained(requests: u64) -> Explained {
        let mut explained = Explained::default();
        explained.allowed[Reason::Fault as usize][2] = requests - requests / 2;
        explained.denied[Reason::Fault as usize][2] = requests / 2;
        explained.narrowed[Reason::Fault as usize][Rule::Room as usize] = requests / 2;
        explained.now.room_bytes = NO_LIMIT;
        for reason in Reason::ALL {
            explained.now.decided[reason as usize] = Decision {
                orders: abi::ALL_ORDERS,
                ..Decision::default()
            };
        }
        explained
    }

    fn snapshot(cgroups: Vec<(String, Explained)>) -> Snapshot {
        Snapshot {
            in_force: InForce {
                policy: "default".to_owned(),
                dry_run: true,
                config_refused: true,
                config_left_out: 7,
            },
            root: "/".to_owned(),
            sizes: X86,
            counts: Counts {
                scans: 3,
                scan_ns: 1_500_000_000,
                reported: 2,
                suppressed: 5,
            },
            cgroups: Cgroups::new(cgroups, 4),
        }
    }

    /// `{a="b",c="d"}` and what follows it.
    fn labels(text: &str) -> (Vec<(String, String)>, &str) {
        let Some(mut rest) = text.strip_prefix('{') else {
            return (Vec::new(), text);
        };
        let mut found = Vec::new();
        loop {
            let (name, value) = rest.split_once("=\"").unwrap();
            let mut text = String::new();
            let mut chars = value.char_indices();
            let end = loop {
                match chars.next().expect("the end of a label's value") {
                    (at, '"') => break at,
                    (_, '\\') => match chars.next().unwrap().1 {
                        'n' => text.push('\n'),
                        c @ ('\\' | '"') => text.push(c),
                        c => panic!("\\{c} is no escape"),
                    },
                    (_, c) => {
                        assert_ne!(c, '\n');
                        text.push(c);
                    }
                }
            };
            found.push((name.to_owned(), text));
            rest = &value[end + 1..];
            match rest.strip_prefix(',') {
                Some(next) => rest = next,
                None => return (found, rest.strip_prefix('}').unwrap()),
            }
        }
    }

    /// Strictly: descriptions before samples, each family once and whole, no sample twice, the end.
    fn parsed(text: &str) -> Vec<Sample> {
        let text = text.strip_suffix("# EOF\n").expect("the end");
        let mut metrics = METRICS.iter();
        let mut current: Option<&Metric> = None;
        let mut samples: Vec<Sample> = Vec::new();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let metric = *metrics.next().expect("a metric of the table");
                let name = metric.name();
                let family = name.strip_suffix(metric.kind.suffix()).unwrap();
                assert_eq!(help, format!("{family} {}", metric.help));
                let kind = lines.next().unwrap();
                assert_eq!(kind, format!("# TYPE {family} {}", metric.kind.name()));
                if let Some(unit) = metric.unit {
                    let line = lines.next().unwrap();
                    assert_eq!(line, format!("# UNIT {family} {}", unit.name()));
                    assert!(family.ends_with(unit.name()));
                }
                current = Some(metric);
                continue;
            }
            let metric = current.expect("a description before it");
            let rest = line.strip_prefix(&metric.name()).expect(line);
            let (labels, value) = labels(rest);
            let names: Vec<&str> = labels.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, metric.labels, "{line}");
            let value: f64 = value.strip_prefix(' ').unwrap().parse().unwrap();
            assert!(value.is_finite() && value >= 0.0, "{line}");
            let sample = (metric.name(), labels, value);
            let twice = samples.iter().any(|s| s.0 == sample.0 && s.1 == sample.1);
            assert!(!twice, "{line}");
            samples.push(sample);
        }
        assert!(metrics.next().is_none(), "all of the table are described");
        samples
    }

    fn value(samples: &[Sample], metric: &Metric, labels: &[&str]) -> Option<f64> {
        let found = samples.iter().find(|(name, of, _)| {
            *name == metric.name()
                && of
                    .iter()
                    .map(|(_, value)| value.as_str())
                    .eq(labels.iter().copied())
        });
        found.map(|(_, _, value)| *value)
    }

    #[test]
    fn every_metric_is_written_as_the_format_says() {
        let mut db = explained(7);
        db.now.room_bytes = 1 << 20;
        db.now.memory_known = 1;
        db.now.memory_bytes = 3 << 20;
        db.now.pressure = 1;
        db.now.unmissed = 1;
        db.now.decided[Reason::Fault as usize].orders = 0x14;
        db.now.decided[Reason::Swapin as usize].orders = 0;
        let all = vec![("/db".to_owned(), db), ("/web".to_owned(), explained(1))];
        let samples = parsed(&text(snapshot(all)).unwrap());
        let is = |metric: &Metric, labels: &[&str]| value(&samples, metric, labels);
        assert_eq!(is(metrics::REQUESTS, &["/db", "fault"]), Some(7.0));
        assert_eq!(is(metrics::REQUESTS, &["/db", "reclaim"]), Some(0.0));
        assert_eq!(is(metrics::OF_SIZE, &["/db", "fault", "64K"]), Some(7.0));
        assert_eq!(is(metrics::DENIED, &["/db", "fault", "64K"]), Some(3.0));
        assert_eq!(is(metrics::DENIED, &["/db", "fault", "2M"]), None);
        assert_eq!(is(metrics::NARROWED, &["/db", "fault", "room"]), Some(3.0));
        assert_eq!(is(metrics::NARROWED, &["/db", "fault", "cap"]), None);
        assert_eq!(is(metrics::ALLOWED, &["/db", "fault"]), Some(65536.0));
        assert_eq!(is(metrics::ALLOWED, &["/db", "swapin"]), Some(4096.0));
        assert_eq!(
            is(metrics::ALLOWED, &["/db", "collapse"]),
            Some(2_097_152.0)
        );
        for metric in [metrics::PRESSURE, metrics::UNMISSED] {
            assert_eq!(is(metric, &["/db"]), Some(1.0));
            assert_eq!(is(metric, &["/web"]), Some(0.0));
        }
        assert_eq!(is(metrics::ROOM, &["/db"]), Some(1_048_576.0));
        assert_eq!(is(metrics::MEMORY, &["/db"]), Some(3_145_728.0));
        assert_eq!(is(metrics::SCANS, &[]), Some(3.0));
        assert_eq!(is(metrics::SCAN_TIME, &[]), Some(1.5));
        assert_eq!(is(metrics::REPORTED, &[]), Some(2.0));
        assert_eq!(is(metrics::SUPPRESSED, &[]), Some(5.0));
        assert_eq!(is(metrics::CGROUPS, &[]), Some(2.0));
        let version = env!("CARGO_PKG_VERSION");
        let abi = abi::ABI.0.to_string();
        assert_eq!(is(metrics::BUILD, &[version, &abi]), Some(1.0));
        assert_eq!(is(metrics::POLICY, &["default", "/"]), Some(1.0));
        assert_eq!(is(metrics::DRY_RUN, &[]), Some(1.0));
        assert_eq!(is(metrics::CONFIG_SUCCESSFUL, &[]), Some(0.0));
        assert_eq!(is(metrics::CONFIG_LEFT_OUT, &[]), Some(7.0));
        for metric in METRICS {
            assert!(
                samples.iter().any(|(name, ..)| *name == metric.name()),
                "{metric:?}"
            );
        }
    }

    #[test]
    fn what_a_cgroup_has_is_named_as_in_status() {
        let schema = schemars::schema_for!(crate::output::cgroups::CgroupLine);
        let schema = schema.to_value().to_string();
        for metric in METRICS.iter().filter(|one| one.labels.contains(&"cgroup")) {
            let name = metric.name();
            let key = name
                .trim_start_matches("mthp_ext_")
                .trim_end_matches("_total");
            let key = key.trim_start_matches("size_");
            let key = key.trim_end_matches("_largest_bytes");
            assert!(schema.contains(&format!("\"{key}\":")), "{name}");
        }
    }

    #[test]
    fn hostile_names_are_values_like_any_other() {
        let raw = String::from_utf8_lossy(HOSTILE).into_owned();
        let names = [raw.as_str(), "a\"} 1", "\\", "b\n# EOF"];
        let all = names.map(|name| (name.to_owned(), explained(1)));
        let samples = parsed(&text(snapshot(all.to_vec())).unwrap());
        for name in names {
            assert_eq!(
                value(&samples, metrics::PRESSURE, &[name]),
                Some(0.0),
                "{name}"
            );
        }
    }

    /// The page of metrics says how many series a host has.
    #[test]
    fn a_cgroup_is_so_many_series() {
        let series = |explained: Explained| {
            let all = vec![("/a".to_owned(), explained)];
            let samples = parsed(&text(snapshot(all)).unwrap());
            samples
                .iter()
                .filter(|(_, of, _)| of.iter().any(|(name, _)| name == "cgroup"))
                .count()
        };
        let mut full = explained(7);
        full.narrowed = Default::default();
        full.allowed = Default::default();
        full.denied = Default::default();
        full.allowed[Reason::Fault as usize][0] = 7;
        assert_eq!(series(full), metrics::LEAST_SERIES);
        for reason in Reason::ALL {
            full.allowed[reason as usize].fill(1);
            // A fault alone has it.
            full.allowed[reason as usize][PUD_SIZE] = u64::from(reason == Reason::Fault);
            for rule in Rule::ALL {
                full.narrowed[reason as usize][rule as usize] = 1;
            }
        }
        full.now.room_bytes = 0;
        full.now.memory_known = 1;
        assert_eq!(series(full), metrics::MOST_SERIES);
        // Those of the host.
        let none = parsed(&text(snapshot(Vec::new())).unwrap());
        let of_host = METRICS
            .iter()
            .filter(|metric| !metric.labels.contains(&"cgroup"));
        assert_eq!(none.len(), of_host.count());
    }

    #[test]
    fn two_that_are_shown_alike_are_no_sample_twice() {
        let all = vec![
            ("/a".to_owned(), explained(1)),
            ("/a".to_owned(), explained(2)),
        ];
        parsed(&text(snapshot(all)).unwrap());
    }

    #[test]
    fn those_that_never_asked_or_asked_less_are_left_out() {
        let all = (0..MOST_CGROUPS as u64 + 5).map(|n| (format!("/{n}"), explained(n)));
        let samples = parsed(&text(snapshot(all.collect())).unwrap());
        let requests = |name: &str| value(&samples, metrics::REQUESTS, &[name, "fault"]);
        assert_eq!(
            value(&samples, metrics::CGROUPS, &[]),
            Some(MOST_CGROUPS as f64)
        );
        assert_eq!(value(&samples, metrics::CGROUPS_LEFT_OUT, &[]), Some(4.0));
        assert_eq!(["/0", "/4", "/5"].map(requests), [None, None, Some(5.0)]);
    }
}

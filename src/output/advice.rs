// SPDX-License-Identifier: GPL-2.0-only
//! What a dry run has counted, in words: what would have been, what to expect, what to do.

use std::collections::BTreeMap;
use std::io::{self, Write};

use schemars::JsonSchema;
use serde::Serialize;

use crate::model::abi::Explained;
use crate::model::counts;
use crate::model::reason::{ByReason, Reason};
use crate::model::rule::Rule;
use crate::model::units::{show_age, show_size};

/// A dry run shorter than this may have missed what the host does once an hour.
pub const ENOUGH_S: u64 = 3600;

/// Cgroups that the text names; JSON has them all.
const NAMED: usize = 10;

/// What one dry run has found.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Findings {
    /// Name of the policy.
    pub policy: String,
    /// The cgroup it is attached to.
    pub root: String,
    /// How long it has been loaded.
    pub seconds: u64,
    /// Cgroups that have asked, those first of which the most would have been spared.
    pub cgroups: Vec<Found>,
    /// What to expect of the policy.
    pub expect: Vec<String>,
    /// What to do.
    pub advice: Vec<String>,
}

/// What it has found of one cgroup.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Found {
    /// Its name.
    pub cgroup: String,
    /// Requests, by reason.
    pub requests: ByReason<u64>,
    /// Those that would have been narrowed.
    pub narrowed: ByReason<u64>,
    /// The same by rule.
    pub by_rule: BTreeMap<&'static str, u64>,
    /// By how much the largest folios asked for exceed those that would have been allowed.
    pub spared_bytes: ByReason<u64>,
    /// The same at page faults, in base pages: each may be a fault of its own.
    #[serde(skip)]
    pub spared_pages: u64,
}

impl Found {
    /// From what the policy's program counts of a cgroup; `page_shift`: of the base page.
    pub fn of(cgroup: String, explained: &Explained, page_shift: u32) -> Self {
        let by_rule = Rule::ALL.into_iter().map(|rule| {
            let count = |reason: Reason| explained.narrowed[reason as usize][rule as usize];
            (rule.name(), Reason::ALL.into_iter().map(count).sum())
        });
        Found {
            cgroup,
            requests: ByReason::new(|reason| counts::requests(explained, reason)),
            narrowed: ByReason::new(|reason| explained.narrowed[reason as usize].iter().sum()),
            by_rule: by_rule.filter(|(_, count)| *count != 0).collect(),
            spared_bytes: ByReason::new(|r| explained.spared_pages[r as usize] << page_shift),
            spared_pages: explained.spared_pages[Reason::Fault as usize],
        }
    }

    /// Large folios that would have come smaller, in bytes.  khugepaged and reclaim ask about the
    /// same memory again and again: their sums are no amount of memory.
    fn spared(&self) -> u64 {
        self.spared_bytes[Reason::Fault] + self.spared_bytes[Reason::Swapin]
    }

    fn narrowed_total(&self) -> u64 {
        sum(&self.narrowed)
    }

    fn text(&self, out: &mut impl Write) -> io::Result<()> {
        let rules: Vec<String> = self
            .by_rule
            .iter()
            .map(|(rule, count)| format!("{rule} {count}"))
            .collect();
        writeln!(
            out,
            "  {}: {} of {} requests ({})",
            self.cgroup,
            self.narrowed_total(),
            sum(&self.requests),
            rules.join(", ")
        )?;
        for (reason, words) in Reason::ALL.map(|reason| (reason, self.words(reason))) {
            if let Some(words) = words {
                writeln!(out, "    {}: {words}", reason.name())?;
            }
        }
        Ok(())
    }

    /// What would have been different for one reason.
    fn words(&self, reason: Reason) -> Option<String> {
        let (bytes, times) = (self.spared_bytes[reason], self.narrowed[reason]);
        let much = |what: &str| (bytes != 0).then(|| format!("{} {what}", show_size(bytes)));
        let often = |what: &str| (times != 0).then(|| format!("{times} times {what}"));
        match reason {
            Reason::Fault => much("would have come in smaller folios"),
            Reason::Swapin => much("would not have been read from swap beside what was needed"),
            Reason::Khugepaged => {
                often("a range would have been left alone, or joined to smaller folios")
            }
            Reason::Collapse => often("a forced collapse would have been refused"),
            Reason::Reclaim => often("a folio in use would have been split"),
        }
    }
}

fn sum(counts: &ByReason<u64>) -> u64 {
    counts.iter().map(|(_, count)| count).sum()
}

impl Findings {
    /// From what was counted of each cgroup.  `setting`: transparent_hugepage/enabled.
    pub fn new(
        policy: String,
        root: String,
        seconds: u64,
        mut cgroups: Vec<Found>,
        setting: Option<&str>,
    ) -> Self {
        cgroups.retain(|found| sum(&found.requests) != 0);
        cgroups.sort_by_key(|found| {
            let most = (found.spared(), found.narrowed_total());
            (std::cmp::Reverse(most), found.cgroup.clone())
        });
        let mut findings = Findings {
            policy,
            root,
            seconds,
            cgroups,
            expect: Vec::new(),
            advice: Vec::new(),
        };
        findings.expect = findings.expectations();
        findings.advice = findings.steps(setting);
        findings
    }

    fn narrowed(&self) -> impl Iterator<Item = &Found> {
        self.cgroups
            .iter()
            .filter(|found| found.narrowed_total() != 0)
    }

    /// Cgroups in which one of `rules` would have narrowed, with what their faults would have been
    /// spared.
    fn by(&self, rules: &[Rule]) -> (usize, u64) {
        let found = self
            .narrowed()
            .filter(|found| rules.iter().any(|r| found.by_rule.contains_key(r.name())));
        found.fold((0, 0), |(count, bytes), found| {
            (count + 1, bytes + found.spared_bytes[Reason::Fault])
        })
    }

    fn expectations(&self) -> Vec<String> {
        let mut expect = Vec::new();
        if let (count @ 1.., _) = self.by(&[Rule::Pressure, Rule::Room]) {
            let read: u64 = self
                .narrowed()
                .map(|f| f.spared_bytes[Reason::Swapin])
                .sum();
            let swap = match read {
                0 => String::new(),
                bytes => format!("; {} less read from swap", show_size(bytes)),
            };
            expect.push(format!(
                "less reclaim and shorter stalls where memory is short: {}{swap}",
                cgroups(count)
            ));
        }
        if let (count @ 1.., bytes) = self.by(&[Rule::Small, Rule::Sparse]) {
            expect.push(format!(
                "less memory in cgroups that would leave large folios mostly empty: {}, at most {}",
                cgroups(count),
                show_size(bytes)
            ));
        }
        if let (count @ 1.., _) = self.by(&[Rule::Cap]) {
            expect.push(format!(
                "folios no larger than the cap of the policy: {}",
                cgroups(count)
            ));
        }
        let pages: u64 = self.narrowed().map(|f| f.spared_pages).sum();
        if pages != 0 {
            let touched = self.narrowed().filter(|f| f.spared_pages != 0).count();
            expect.push(format!(
                "the price, where all of that memory is used: at most {pages} more page faults, and TLB misses, which \
                 nothing here counts: {}",
                cgroups(touched)
            ));
        }
        if let quiet @ 1.. = self.cgroups.len() - self.narrowed().count() {
            expect.push(format!("no difference: {}", cgroups(quiet)));
        }
        expect
    }

    fn steps(&self, setting: Option<&str>) -> Vec<String> {
        let mut steps = Vec::new();
        if self.cgroups.is_empty() {
            let now = setting.unwrap_or("missing in this kernel");
            steps.push(format!(
                "nobody has asked for a large folio, so there is nothing to decide: \
                 transparent_hugepage/enabled is {now}; the settings come first (docs/use.md)"
            ));
        }
        if self.seconds < ENOUGH_S {
            steps.push(format!(
                "let it see an hour with the usual peak in it: it has seen {}",
                show_age(self.seconds)
            ));
        } else if let Some(first) = self.narrowed().next() {
            steps.push(format!(
                "start the policy where it would do the most, without --dry-run and with --root {}",
                first.cgroup
            ));
            steps.push(
                "compare rate, p99 and swap traffic of that cgroup for a day (docs/operations.md)"
                    .to_owned(),
            );
        } else if !self.cgroups.is_empty() {
            steps.push(
                "start the policy without --dry-run: so far it would have changed nothing, and it \
                 acts when memory gets short"
                    .to_owned(),
            );
        }
        steps
    }

    /// Prints it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn text(&self, out: &mut impl Write) -> io::Result<()> {
        let total = |of: fn(&Found) -> u64| self.cgroups.iter().map(of).sum::<u64>();
        writeln!(
            out,
            "policy {} (dry run) on {}, for {}: it would have narrowed {} of {} requests, in {} of {}",
            self.policy,
            self.root,
            show_age(self.seconds),
            total(Found::narrowed_total),
            total(|found| sum(&found.requests)),
            self.narrowed().count(),
            cgroups(self.cgroups.len()),
        )?;
        for found in self.narrowed().take(NAMED) {
            found.text(out)?;
        }
        if let more @ 1.. = self.narrowed().count().saturating_sub(NAMED) {
            writeln!(out, "  and {more} more: --json has them")?;
        }
        for (title, lines) in [("expect", &self.expect), ("do", &self.advice)] {
            for line in lines {
                writeln!(out, "{title}: {line}")?;
            }
        }
        Ok(())
    }
}

fn cgroups(count: usize) -> String {
    match count {
        1 => "1 cgroup".to_owned(),
        count => format!("{count} cgroups"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `(reason, rule, times, pages)`, and as many requests that pass.
    fn found(cgroup: &str, counts: &[(Reason, Option<Rule>, u64, u64)]) -> Found {
        let mut explained = Explained::default();
        for (reason, rule, times, pages) in counts {
            explained.allowed[*reason as usize][0] += times;
            if let Some(rule) = rule {
                explained.narrowed[*reason as usize][*rule as usize] += times;
                explained.spared_pages[*reason as usize] += pages;
            }
        }
        Found::of(cgroup.to_owned(), &explained, 12)
    }

    fn findings(seconds: u64, cgroups: Vec<Found>) -> Findings {
        Findings::new(
            "default".into(),
            "/".into(),
            seconds,
            cgroups,
            Some("always"),
        )
    }

    fn printed(findings: &Findings) -> String {
        let mut out = Vec::new();
        findings.text(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_key_is_on_the_page() {
        let db = found("/db", &[(Reason::Fault, Some(Rule::Room), 1, 1)]);
        let json = serde_json::to_value(findings(60, vec![db])).unwrap();
        assert_eq!(crate::output::print::undocumented(&json), [""; 0]);
    }

    #[test]
    fn it_says_what_would_have_been() {
        let db = [
            (Reason::Fault, Some(Rule::Room), 3, 3 * 511),
            (Reason::Swapin, Some(Rule::Pressure), 2, 512),
            (Reason::Reclaim, Some(Rule::Room), 4, 4 * 511),
            (Reason::Fault, None, 5, 0),
        ];
        let small = [(Reason::Fault, Some(Rule::Small), 1, 511)];
        let free = [(Reason::Fault, None, 7, 0)];
        let all = vec![
            found("/free", &free),
            found("/small", &small),
            found("/db", &db),
            found("/idle", &[]),
        ];
        let said = printed(&findings(7200, all));
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(
            lines,
            [
                "policy default (dry run) on /, for 2h: it would have narrowed 10 of 22 requests, \
                 in 2 of 3 cgroups",
                "  /db: 9 of 14 requests (pressure 2, room 7)",
                "    fault: 5.9M would have come in smaller folios",
                "    swapin: 2M would not have been read from swap beside what was needed",
                "    reclaim: 4 times a folio in use would have been split",
                "  /small: 1 of 1 requests (small 1)",
                "    fault: 1.9M would have come in smaller folios",
                "expect: less reclaim and shorter stalls where memory is short: 1 cgroup; \
                 2M less read from swap",
                "expect: less memory in cgroups that would leave large folios mostly empty: \
                 1 cgroup, at most 1.9M",
                "expect: the price, where all of that memory is used: at most 2044 more page faults, and TLB misses, \
                 which nothing here counts: 2 cgroups",
                "expect: no difference: 1 cgroup",
                "do: start the policy where it would do the most, without --dry-run and with \
                 --root /db",
                "do: compare rate, p99 and swap traffic of that cgroup for a day \
                 (docs/operations.md)",
            ]
        );
    }

    #[test]
    fn each_rule_has_an_effect_to_expect() {
        for rule in Rule::ALL {
            let one = found("/a", &[(Reason::Fault, Some(rule), 1, 0)]);
            let expect = findings(60, vec![one]).expect;
            // Without pages there is no price.
            assert_eq!(expect.len(), 1, "{}: {expect:?}", rule.name());
        }
    }

    #[test]
    fn a_short_run_or_a_silent_host_is_no_ground_for_advice() {
        let free = || vec![found("/free", &[(Reason::Fault, None, 7, 0)])];
        let said = printed(&findings(60, free()));
        assert!(said.contains("do: let it see an hour"), "{said}");
        assert!(!said.contains("start the policy"), "{said}");
        let said = printed(&findings(ENOUGH_S, free()));
        assert!(
            said.contains("do: start the policy without --dry-run: so far"),
            "{said}"
        );
        let said = printed(&findings(ENOUGH_S, Vec::new()));
        assert!(said.contains("do: nobody has asked"), "{said}");
        assert!(!said.contains("start the policy"), "{said}");
    }

    #[test]
    fn the_text_names_some_and_json_all() {
        let one = |n: usize| {
            found(
                &format!("/{n:02}"),
                &[(Reason::Fault, Some(Rule::Cap), 1, 1)],
            )
        };
        let all = findings(ENOUGH_S, (0..NAMED + 2).map(one).collect());
        let said = printed(&all);
        assert!(said.contains("/09: ") && !said.contains("/10: "), "{said}");
        assert!(said.contains("  and 2 more: --json has them\n"), "{said}");
        assert!(
            said.contains("no larger than the cap of the policy: 12 cgroups"),
            "{said}"
        );
        let json = serde_json::to_value(&all).unwrap();
        assert_eq!(json["cgroups"].as_array().unwrap().len(), NAMED + 2);
    }
}

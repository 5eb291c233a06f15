// SPDX-License-Identifier: GPL-2.0-only
//! Two sides of a comparison, and what of their difference is more than noise.
//!
//! A side has looks at counters, at gauges or at a state.  Its figure is a ratio: of the growth
//! between looks, or of gauges.  Its error comes from the scatter of the looks, for as many looks
//! as are independent of each other: load has phases, and memory of a minute ago is mostly there
//! still.  What the looks cannot say is assumed, and the constants below are all that is.

use super::student;

/// One look: `part` of `whole`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    /// What is counted.
    pub part: f64,
    /// Of how much.
    pub whole: f64,
}

/// What looks are at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Events since the look before.
    Counter,
    /// A quantity at this moment.
    Gauge,
    /// Something that is so or not.
    State,
}

/// A figure of one side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// The ratio.
    pub value: f64,
    /// Its standard error.
    pub error: f64,
    /// Degrees of freedom of the error.
    pub freedom: f64,
}

/// Events of a counter that are as good as one independent one: faults of a program that starts
/// come by the hundred.
const BURST: f64 = 100.0;

/// Looks from which their own scatter says what the noise is.
const SEVERAL: usize = 4;

/// By how much a gauge may be beside its mean without anything that shows it.
const GLANCE: f64 = 0.05;

/// Beyond the range of few looks in a row there is more.
const BEYOND: f64 = 1.5;

/// Looks that a correlation which few of them do not show costs.
const UNSEEN: f64 = 8.0;

/// Looks at a state that never changed which are as good as one: such a series has no correlation.
const SPELL: f64 = 4.0;

/// Freedom of an error that is assumed.
const ASSUMED: f64 = 1000.0;

/// A smaller difference of two shares changes nobody's mind, however exact it is.
pub const LEAST: f64 = 0.02;

/// Of the figures that are said to differ, the share that may do so by chance; and how often one
/// is, where nothing differs.
pub const CHANCE: f64 = 0.01;

fn total(looks: &[Look], of: impl Fn(&Look) -> f64) -> f64 {
    looks.iter().map(of).sum()
}

/// How many independent looks are as good as these, by the correlation of neighbours: the larger of
/// what one that fades by the same factor from look to look has, and of what was measured until it
/// is gone.  None where nothing scatters.
/// `even`: 1 if the looks weigh the same; the less, the more their weights hide of the correlation.
fn independent(off: &[f64], even: f64) -> Option<f64> {
    let n = off.len() as f64;
    let squares: f64 = off.iter().map(|x| x * x).sum();
    if squares <= f64::EPSILON {
        return None;
    }
    let at = |lag: usize| {
        let pairs = off.iter().zip(off.iter().skip(lag));
        pairs.map(|(x, y)| x * y).sum::<f64>() / squares
    };
    // A mean taken from the same looks hides some of it: (1 + 4 of it) / n (Kendall, 1954).
    let next = ((n * at(1) + 1.0) / (n - 4.0).max(1.0) / even).clamp(0.0, 0.99);
    // Few looks do not show how correlated they are.
    let fading = (1.0 + 2.0 * even * next / (1.0 - next)).max(1.0 + UNSEEN / n);
    // Sums of two neighbouring lags are positive as long as they are no chance (Geyer, 1992).
    let pairs = (1..).step_by(2).take_while(|lag| lag + 1 < off.len());
    let measured: f64 = pairs
        .map(|lag| at(lag) + at(lag + 1))
        .take_while(|&sum| sum > 0.0)
        .sum();
    Some((n / fading.max(1.0 + 2.0 * measured)).max(1.0))
}

impl Figure {
    /// Of these looks; none where nothing was counted.
    pub fn of(kind: Kind, looks: &[Look]) -> Option<Self> {
        let looks: Vec<Look> = looks.iter().filter(|l| l.whole > 0.0).copied().collect();
        let whole = total(&looks, |look| look.whole);
        if whole <= 0.0 {
            return None;
        }
        let value = total(&looks, |look| look.part) / whole;
        let scattered = Self::scattered(kind, value, &looks);
        let assumed = Self::assumed(kind, value, &looks);
        // Few looks are of one moment: only a model says how that differs from another.
        if looks.len() < SEVERAL {
            return Some(assumed);
        }
        Some(match kind {
            // A gauge that only drifts is as good as one look at it.
            Kind::Gauge if assumed.reach() < scattered.reach() => assumed,
            _ => scattered,
        })
    }

    /// By the scatter of the looks.
    fn scattered(kind: Kind, value: f64, looks: &[Look]) -> Self {
        let n = looks.len() as f64;
        let whole = total(looks, |look| look.whole);
        let off: Vec<f64> = looks.iter().map(|l| l.part - value * l.whole).collect();
        let squares: f64 = off.iter().map(|x| x * x).sum();
        let even = whole * whole / (n * total(looks, |look| look.whole * look.whole));
        let effective = independent(&off, even).unwrap_or(match kind {
            Kind::Counter => n,
            Kind::Gauge => 1.0,
            Kind::State => (n / SPELL).max(1.0),
        });
        let each = whole / n;
        // What was not seen is not impossible: one event more, of the other kind.
        let unseen = match kind {
            Kind::Counter => each.min(BURST),
            Kind::Gauge => 0.0,
            Kind::State => each * (n / effective).sqrt(),
        } * value.max(1.0 - value);
        let variance = (squares + unseen * unseen) / (n - 1.0).max(1.0) / (each * each);
        let error = (variance / effective).sqrt();
        Figure {
            value,
            error: match kind {
                Kind::Gauge => error.max(GLANCE / effective.sqrt()),
                _ => error,
            },
            freedom: effective - 1.0,
        }
    }

    /// By a model, where the looks are too few to scatter; no better than they do.
    fn assumed(kind: Kind, value: f64, looks: &[Look]) -> Self {
        let whole = total(looks, |look| look.whole);
        let shares = || looks.iter().map(|look| look.part / look.whole);
        let range = shares().fold(f64::MIN, f64::max) - shares().fold(f64::MAX, f64::min);
        let error = match kind {
            Kind::Gauge => GLANCE,
            Kind::Counter | Kind::State => {
                let events = match kind {
                    Kind::Counter => (whole / BURST).max(1.0),
                    _ => 1.0,
                };
                // Rule of succession: none of ten is not none of ten thousand.
                let share = (value * events + 1.0) / (events + 2.0);
                (share * (1.0 - share) / events).sqrt()
            }
        };
        Figure {
            value,
            error: error.max(BEYOND * range),
            freedom: ASSUMED,
        }
    }

    /// What it takes to be seen, for choosing between two.
    fn reach(&self) -> f64 {
        self.error * student::bound(CHANCE, self.freedom)
    }

    /// The standard error of the difference of two, and its freedom (Welch, 1947).
    fn together(&self, other: &Self) -> (f64, f64) {
        let (one, two) = (self.error.powi(2), other.error.powi(2));
        let both = one + two;
        if both <= 0.0 {
            return (0.0, ASSUMED);
        }
        let spread = |part: f64, of: &Self| (part / both).powi(2) / of.freedom.max(0.1);
        let freedom = 1.0 / (spread(one, self) + spread(two, other));
        (both.sqrt(), freedom.min(ASSUMED))
    }

    /// How often chance alone makes two that are [`LEAST`] apart, or less, differ as much as these.
    /// A difference that is left out anyway must not count as found: each that does makes the rest
    /// easier to find ([`bar`]), and only chance would be left of it.
    pub fn chance(&self, other: &Self) -> f64 {
        let (error, freedom) = self.together(other);
        let beyond = (self.value - other.value).abs() - LEAST;
        match (beyond > 0.0, error > 0.0) {
            (false, _) => 1.0,
            (true, false) => 0.0,
            (true, true) => student::both_tails(beyond / error, freedom),
        }
    }

    /// What chance alone adds to a difference and exceeds that often.
    pub fn noise(&self, other: &Self, chance: f64) -> f64 {
        let (error, freedom) = self.together(other);
        error * student::bound(chance, freedom)
    }
}

/// The chance from which down figures are said to differ, so that of these [`CHANCE`] do so by
/// chance, of however many (Benjamini and Hochberg, 1995).
pub fn bar(chances: &[f64]) -> f64 {
    let mut ascending = chances.to_vec();
    ascending.sort_by(f64::total_cmp);
    let each = CHANCE / chances.len().max(1) as f64;
    let bars = (1..=ascending.len()).map(|rank| rank as f64 * each);
    let met = ascending.iter().zip(bars).filter(|(one, bar)| *one <= bar);
    met.last().map_or(each, |(_, bar)| bar)
}

/// Is the difference of the two, beyond what is worth no word, more than chance?
pub fn differ(before: &Figure, after: &Figure, bar: f64) -> bool {
    before.chance(after) <= bar
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(all: &[(f64, f64)]) -> Vec<Look> {
        let look = |&(part, whole): &(f64, f64)| Look { part, whole };
        all.iter().map(look).collect()
    }

    fn counted(all: &[(f64, f64)]) -> Figure {
        Figure::of(Kind::Counter, &looks(all)).unwrap()
    }

    fn shares(kind: Kind, all: &[f64], whole: f64) -> Figure {
        let all: Vec<(f64, f64)> = all.iter().map(|s| (s * whole, whole)).collect();
        Figure::of(kind, &looks(&all)).unwrap()
    }

    /// Do two alone differ?
    fn two(one: &Figure, other: &Figure) -> bool {
        differ(one, other, bar(&[one.chance(other)]))
    }

    /// The same numbers on each run.
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> f64 {
            // Splitmix: neighbours have nothing in common.
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut x = self.0;
            x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((x ^ (x >> 31)) >> 11) as f64 / (1u64 << 53) as f64
        }

        /// Of mean 0 and deviation 1.
        fn normal(&mut self) -> f64 {
            (0..12).map(|_| self.next()).sum::<f64>() - 6.0
        }

        /// Looks of mean 0 and deviation 1, each with so much of the one before.
        fn drifting(&mut self, count: usize, kept: f64) -> Vec<f64> {
            let fresh = (1.0 - kept * kept).sqrt();
            let mut now = self.normal();
            let mut step = || {
                let value = now;
                now = kept * now + fresh * self.normal();
                value
            };
            (0..count).map(|_| step()).collect()
        }
    }

    #[test]
    fn a_ratio_weighs_by_what_was_counted() {
        let one = counted(&[(1.0, 10.0), (90.0, 100.0)]);
        assert!((one.value - 91.0 / 110.0).abs() < 1e-12);
        assert_eq!(Figure::of(Kind::Counter, &[]), None);
        assert_eq!(Figure::of(Kind::Gauge, &looks(&[(0.0, 0.0); 9])), None);
    }

    #[test]
    fn few_events_differ_by_chance() {
        assert!(!two(&counted(&[(3.0, 20.0)]), &counted(&[(12.0, 20.0)])));
        assert!(two(&counted(&[(3e6, 2e7)]), &counted(&[(12e6, 2e7)])));
        // None of few says no more than that.
        assert!(!two(&counted(&[(0.0, 10.0)]), &counted(&[(0.9e6, 1e6)])));
    }

    /// Looks that are all the same seem to scatter by nothing.
    #[test]
    fn a_request_for_each_look_is_few_events_too() {
        for (count, each, wanted) in [(4, 1.0, false), (4, 25.0, false), (20, 1.0, true)] {
            let none = counted(&vec![(0.0, each); count]);
            let all = counted(&vec![(each, each); count]);
            assert_eq!(two(&none, &all), wanted, "{count} looks of {each}");
        }
        let (calm, stalled) = ([0.0; 60], [1.0; 60]);
        for (count, wanted) in [(1, false), (4, false), (8, false), (60, true)] {
            let one = shares(Kind::State, &calm[..count], 1.0);
            let other = shares(Kind::State, &stalled[..count], 1.0);
            assert_eq!(two(&one, &other), wanted, "{count} looks");
        }
    }

    #[test]
    fn looks_at_a_gauge_that_stays_are_one_look() {
        for count in [1, 3, 60] {
            let gauge = |share: f64| shares(Kind::Gauge, &vec![share; count], 1e9);
            assert!(!two(&gauge(0.5), &gauge(0.65)), "{count} looks");
            assert!(two(&gauge(0.5), &gauge(0.9)), "{count} looks");
        }
        // One that drifts by little is not worse than one that stays.
        let drift = |from: f64| -> Figure {
            let all: Vec<f64> = (0..60).map(|at| from + 3e-4 * f64::from(at)).collect();
            shares(Kind::Gauge, &all, 1e9)
        };
        assert!(two(&drift(0.5), &drift(0.9)));
        assert!(!two(&drift(0.5), &drift(0.55)));
    }

    #[test]
    fn a_difference_that_nobody_would_act_on_is_left_out() {
        let (one, other) = (counted(&[(500e6, 1e9)]), counted(&[(515e6, 1e9)]));
        assert!((one.value - other.value).abs() > one.noise(&other, CHANCE));
        assert_eq!(one.chance(&other), 1.0);
        assert!(!two(&one, &other));
        assert!(two(&one, &counted(&[(530e6, 1e9)])));
    }

    /// Looks that scatter say more than the count of their events.
    #[test]
    fn the_scatter_of_the_looks_is_the_noise() {
        let at = |all: &[f64]| shares(Kind::Counter, all, 1e6);
        let wild = at(&[0.1, 0.9, 0.2, 0.8, 0.15, 0.85]);
        let wilder = at(&[0.9, 0.2, 0.9, 0.3, 0.95, 0.6]);
        assert!(!two(&wild, &wilder), "{wild:?} {wilder:?}");
        let calm = at(&[0.50, 0.51, 0.49, 0.50, 0.51, 0.49]);
        let calmer = at(&[0.60, 0.61, 0.59, 0.60, 0.61, 0.59]);
        assert!(two(&calm, &calmer));
        // Also of two or three.
        assert!(!two(&at(&[0.1, 0.9, 0.2]), &at(&[0.7, 0.6, 0.8])));
    }

    #[test]
    fn correlated_looks_are_fewer() {
        let mut random = Random(3);
        let mut mean = |kept: f64| {
            let runs = (0..200).map(|_| independent(&random.drifting(100, kept), 1.0).unwrap());
            runs.sum::<f64>() / 200.0
        };
        let (fresh, kept) = (mean(0.0), mean(0.8));
        // Of 100 that keep 0.8 of the one before 11 are independent; of those that keep none, all.
        assert!(
            fresh > 60.0 && (7.0..13.0).contains(&kept),
            "{fresh} {kept}"
        );
    }

    /// A process that makes looks, and how the looks are told.
    type Process = (
        &'static str,
        Kind,
        fn(&mut Random, usize) -> Vec<(f64, f64)>,
    );

    const PROCESSES: [Process; 8] = [
        ("requests of their own", Kind::Counter, |random, count| {
            let mut look = || {
                let part = (0..200).filter(|_| random.next() < 0.3).count();
                (part as f64, 200.0)
            };
            (0..count).map(|_| look()).collect()
        }),
        ("one request each", Kind::Counter, |random, count| {
            let mut look = || (f64::from(u8::from(random.next() < 0.5)), 1.0);
            (0..count).map(|_| look()).collect()
        }),
        ("bursts of a hundred", Kind::Counter, |random, count| {
            let mut look = || {
                let bursts = 1 + (8.0 * random.next()) as u32;
                let hit = (0..bursts).filter(|_| random.next() < 0.15).count();
                (100.0 * hit as f64, 100.0 * f64::from(bursts))
            };
            (0..count).map(|_| look()).collect()
        }),
        ("phases of load", Kind::Counter, |random, count| {
            let share = random.drifting(count, 0.7);
            let mut look = |x: &f64| {
                let whole = 1e3 + 1e5 * random.next();
                (whole * (0.4 + 0.1 * x).clamp(0.0, 1.0), whole)
            };
            share.iter().map(&mut look).collect()
        }),
        ("a fresh gauge", Kind::Gauge, |random, count| {
            let share = random.drifting(count, 0.0);
            share.iter().map(|x| (0.5 + 0.1 * x, 1.0)).collect()
        }),
        ("a gauge", Kind::Gauge, |random, count| {
            let share = random.drifting(count, 0.8);
            share.iter().map(|x| (0.5 + 0.1 * x, 1.0)).collect()
        }),
        ("a slow gauge", Kind::Gauge, |random, count| {
            let share = random.drifting(count, 0.97);
            share.iter().map(|x| (0.5 + 0.05 * x, 1.0)).collect()
        }),
        ("spells of pressure", Kind::State, |random, count| {
            let mut on = random.next() < 0.5;
            let mut look = || {
                on ^= random.next() < 0.15;
                (f64::from(u8::from(on)), 1.0)
            };
            (0..count).map(|_| look()).collect()
        }),
    ];

    /// Two sides of the same process differ as rarely as is said, whatever makes the looks.
    #[test]
    fn false_alarms_are_rare() {
        const RUNS: u32 = 500;
        let mut random = Random(1);
        let mut wrong = Vec::new();
        for (name, kind, process) in PROCESSES {
            for count in [4, 8, 20, 60] {
                let mut alarms = 0;
                for _ in 0..RUNS {
                    let mut side =
                        || Figure::of(kind, &looks(&process(&mut random, count))).unwrap();
                    alarms += u32::from(two(&side(), &side()));
                }
                let share = f64::from(alarms) / f64::from(RUNS);
                println!("{name}, {count} looks: {:.2} %", 100.0 * share);
                // Strongly correlated looks make most of them; so few runs vary by 0.7.
                if share > 3.5 * CHANCE {
                    wrong.push(format!("{name}, {count} looks: {alarms} of {RUNS}"));
                }
            }
        }
        assert_eq!(wrong, [""; 0]);
    }

    /// However many figures are compared.
    #[test]
    fn a_host_full_of_figures_is_no_false_alarm() {
        const REPORTS: u32 = 200;
        let mut random = Random(4);
        let mut alarms = 0;
        for _ in 0..REPORTS {
            let mut pair = |at: usize| {
                let (_, kind, process) = PROCESSES[at % PROCESSES.len()];
                [(); 2].map(|()| Figure::of(kind, &looks(&process(&mut random, 60))).unwrap())
            };
            let pairs: Vec<[Figure; 2]> = (0..80).map(&mut pair).collect();
            let bar = bar(&pairs.iter().map(|[a, b]| a.chance(b)).collect::<Vec<_>>());
            alarms += u32::from(pairs.iter().any(|[a, b]| differ(a, b, bar)));
        }
        assert!(alarms <= REPORTS / 50, "{alarms} of {REPORTS}");
        // What is published is what was measured.
        let said = format!("in {alarms} of {REPORTS} reports");
        assert!(include_str!("../../docs/use.md").contains(&said), "{said}");
    }

    /// Many differences that are true, and too small for a word, between figures that scatter.
    #[test]
    fn small_differences_do_not_make_chance_look_true() {
        let exact = |value: f64, error: f64| Figure {
            value,
            error: error / 2.0_f64.sqrt(),
            freedom: ASSUMED,
        };
        let mut random = Random(5);
        let mut alarms = 0;
        for _ in 0..100 {
            let mut pairs = vec![[exact(0.3, 0.001), exact(0.31, 0.001)]; 990];
            pairs.extend((0..100).map(|_| {
                let off = 0.02 * random.normal();
                [exact(0.3, 0.02), exact(0.3 + off, 0.02)]
            }));
            let bar = bar(&pairs.iter().map(|[a, b]| a.chance(b)).collect::<Vec<_>>());
            alarms += u32::from(pairs.iter().any(|[a, b]| differ(a, b, bar)));
        }
        assert_eq!(alarms, 0, "of 100");
    }

    #[test]
    fn what_moved_is_found() {
        let mut random = Random(2);
        let (mut counters, mut gauges) = (0, 0);
        for _ in 0..300 {
            let mut side = |more: f64| {
                let each = (0..12).map(|_| 0.3 + more + 0.1 * random.next());
                shares(Kind::Counter, &each.collect::<Vec<_>>(), 1e4)
            };
            counters += u32::from(two(&side(0.0), &side(0.1)));
            let mut side = |mean: f64| {
                let all = random.drifting(60, 0.8);
                let all: Vec<f64> = all.iter().map(|x| mean + 0.05 * x).collect();
                shares(Kind::Gauge, &all, 1e9)
            };
            gauges += u32::from(two(&side(0.5), &side(0.7)));
        }
        println!("counters {counters}, gauges {gauges} of 300");
        assert!(
            counters > 220 && gauges > 200,
            "{counters}, {gauges} of 300"
        );
    }

    #[test]
    fn the_bar_rises_with_what_is_true() {
        assert_eq!(bar(&[]), CHANCE);
        assert_eq!(bar(&[0.5, 0.003]), CHANCE / 2.0);
        assert_eq!(bar(&[0.5; 100]), CHANCE / 100.0);
        // With nine that are clear the tenth may be less so.
        let mut many = vec![1e-9; 9];
        many.extend([0.0095, 0.9]);
        assert!((bar(&many) - CHANCE * 9.0 / 11.0).abs() < 1e-12);
        many[9] = 0.009;
        assert!((bar(&many) - CHANCE * 10.0 / 11.0).abs() < 1e-12);
    }
}

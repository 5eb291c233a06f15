// SPDX-License-Identifier: GPL-2.0-only
//! Two sides of a comparison, and what of their difference is more than noise.
//!
//! A side has looks at counters or at gauges.  Its figure is a ratio: of the growth between looks,
//! or of gauges.  With several looks the noise is what the looks differ by; with one it is that of
//! as many independent events as a hundredth of those that were counted, as they come in bursts.

/// One look: `part` of `whole`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    /// What is counted.
    pub part: f64,
    /// Of how much.
    pub whole: f64,
}

/// A figure of one side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// The ratio.
    pub value: f64,
    /// Its standard error.
    pub error: f64,
    /// Looks it is made of.
    pub looks: usize,
}

/// Events of a counter that are as good as one independent one: faults of a program that starts
/// come by the hundred.
const BURST: f64 = 100.0;

/// Looks from which their own scatter says what the noise is.
const SEVERAL: usize = 4;

/// By how much a gauge that was looked at few times may be beside its mean.
const GLANCE: f64 = 0.05;

/// A smaller difference of two shares changes nobody's mind, however exact it is.
pub const LEAST: f64 = 0.02;

/// Three standard errors of as many looks more than one: Student's factors for 99.73 %.
const FACTORS: [f64; 20] = [
    235.80, 19.21, 9.22, 6.62, 5.51, 4.90, 4.53, 4.28, 4.09, 3.96, 3.85, 3.76, 3.69, 3.64, 3.59,
    3.54, 3.51, 3.48, 3.45, 3.42,
];

impl Figure {
    /// Of these looks; none where nothing was counted.
    pub fn of(looks: &[Look]) -> Option<Self> {
        let whole: f64 = looks.iter().map(|look| look.whole).sum();
        let part: f64 = looks.iter().map(|look| look.part).sum();
        let counted: Vec<&Look> = looks.iter().filter(|look| look.whole > 0.0).collect();
        if whole <= 0.0 {
            return None;
        }
        let (value, count) = (part / whole, counted.len());
        if count < SEVERAL {
            // Rule of succession: none of ten is not none of ten thousand.
            let events = (whole / BURST).max(1.0);
            let share = (value * events + 1.0) / (events + 2.0);
            let error = (share * (1.0 - share) / events).sqrt();
            return Some(Figure {
                value,
                error,
                looks: 1,
            });
        }
        let off = |look: &&Look| (look.part - value * look.whole).powi(2);
        let squares: f64 = counted.iter().map(off).sum();
        let n = count as f64;
        Some(Figure {
            value,
            error: (squares * n / (n - 1.0)).sqrt() / whole,
            looks: count,
        })
    }

    /// The same of what is looked at and not counted.  A few looks say little of what is between.
    pub fn of_gauge(looks: &[Look]) -> Option<Self> {
        let figure = Self::of(looks)?;
        Some(match figure.looks {
            1 => Figure {
                error: GLANCE,
                ..figure
            },
            _ => figure,
        })
    }

    /// Above what a difference of the two is more than chance.
    pub fn noise(&self, other: &Self) -> f64 {
        let error = self.error.hypot(other.error);
        let of = |figure: &Self| match figure.looks {
            // Nothing is known of how it scatters but what was assumed.
            1 => 3.0,
            looks => FACTORS.get(looks - 2).copied().unwrap_or(3.4),
        };
        error * of(self).max(of(other))
    }

    /// Is the difference of the two both more than chance and worth a word?
    pub fn differs(&self, other: &Self) -> bool {
        let difference = (self.value - other.value).abs();
        difference > self.noise(other) && difference > LEAST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(looks: &[(f64, f64)]) -> Figure {
        let looks: Vec<Look> = looks
            .iter()
            .map(|&(part, whole)| Look { part, whole })
            .collect();
        Figure::of(&looks).unwrap()
    }

    /// The same numbers on each run.
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> f64 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    #[test]
    fn a_ratio_weighs_by_what_was_counted() {
        let one = figure(&[(1.0, 10.0), (90.0, 100.0)]);
        assert!((one.value - 91.0 / 110.0).abs() < 1e-12);
        assert_eq!(Figure::of(&[]), None);
        let nothing = Look {
            part: 0.0,
            whole: 0.0,
        };
        assert_eq!(Figure::of(&[nothing; 9]), None);
    }

    #[test]
    fn few_events_differ_by_chance() {
        let (few, more) = (figure(&[(3.0, 20.0)]), figure(&[(12.0, 20.0)]));
        assert!(!few.differs(&more), "{few:?} {more:?}");
        let many = (figure(&[(3e6, 2e7)]), figure(&[(12e6, 2e7)]));
        assert!(many.0.differs(&many.1));
        // None of few says no more than that.
        assert!(!figure(&[(0.0, 10.0)]).differs(&figure(&[(0.9e6, 1e6)])));
    }

    #[test]
    fn one_look_at_a_gauge_says_little() {
        let gauge = |part: f64| Figure::of_gauge(&[Look { part, whole: 1e9 }]).unwrap();
        assert!(!gauge(0.5e9).differs(&gauge(0.7e9)));
        assert!(gauge(0.5e9).differs(&gauge(0.9e9)));
    }

    #[test]
    fn a_difference_that_nobody_would_act_on_is_left_out() {
        let (one, other) = (figure(&[(500e6, 1e9)]), figure(&[(515e6, 1e9)]));
        assert!((one.value - other.value).abs() > one.noise(&other));
        assert!(!one.differs(&other));
        assert!(one.differs(&figure(&[(530e6, 1e9)])));
    }

    /// Looks that scatter say more than the count of their events.
    #[test]
    fn the_scatter_of_the_looks_is_the_noise() {
        let at = |shares: &[f64]| {
            let looks: Vec<(f64, f64)> = shares.iter().map(|s| (s * 1e6, 1e6)).collect();
            figure(&looks)
        };
        let wild = at(&[0.1, 0.9, 0.2, 0.8, 0.15, 0.85]);
        let wilder = at(&[0.9, 0.2, 0.9, 0.3, 0.95, 0.6]);
        assert!(!wild.differs(&wilder), "{wild:?} {wilder:?}");
        let calm = at(&[0.50, 0.51, 0.49, 0.50, 0.51, 0.49]);
        let calmer = at(&[0.60, 0.61, 0.59, 0.60, 0.61, 0.59]);
        assert!(calm.differs(&calmer));
    }

    /// Of two sides that are the same, one in 370 looks different at most, with few looks and
    /// with many.
    #[test]
    fn the_same_twice_differs_rarely() {
        let mut random = Random(1);
        for looks in [4, 6, 20, 60] {
            let mut wrong = 0;
            for _ in 0..2000 {
                let mut side = || {
                    let looks: Vec<(f64, f64)> = (0..looks)
                        .map(|_| {
                            let whole = 1e3 + 1e5 * random.next();
                            (whole * (0.2 + 0.4 * random.next()), whole)
                        })
                        .collect();
                    figure(&looks)
                };
                let (one, other) = (side(), side());
                wrong += u32::from(one.differs(&other));
            }
            assert!(wrong <= 12, "{looks} looks: {wrong} of 2000");
        }
    }

    #[test]
    fn what_moved_is_found() {
        let mut random = Random(2);
        let mut found = 0;
        for _ in 0..500 {
            let mut side = |more: f64| {
                let looks: Vec<(f64, f64)> = (0..12)
                    .map(|_| (1e4 * (0.3 + more + 0.1 * random.next()), 1e4))
                    .collect();
                figure(&looks)
            };
            let (one, other) = (side(0.0), side(0.1));
            found += u32::from(one.differs(&other));
        }
        assert!(found > 450, "{found} of 500");
    }
}

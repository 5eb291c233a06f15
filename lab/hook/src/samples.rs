// SPDX-License-Identifier: GPL-2.0-only
//! Sorted samples.

/// Instructions of many operations of one kind.
pub struct Samples {
    sorted: Vec<u64>,
}

impl Samples {
    /// Sorts them.
    pub fn new(mut samples: Vec<u64>) -> Self {
        samples.sort_unstable();
        Self { sorted: samples }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.sorted.len()
    }

    /// Their sum.
    pub fn total(&self) -> u64 {
        self.sorted.iter().sum()
    }

    /// Mean of the middle: without the tenth that is smallest and the tenth that is largest. `None` without samples.
    pub fn middle(&self) -> Option<f64> {
        let cut = self.sorted.len() / 10;
        let kept = &self.sorted[cut..self.sorted.len() - cut];
        (!kept.is_empty()).then(|| kept.iter().sum::<u64>() as f64 / kept.len() as f64)
    }

    /// The smallest that `percent` (0 to 100) of them do not exceed; `None` without samples.
    pub fn percentile(&self, percent: usize) -> Option<u64> {
        let rank = (self.sorted.len() * percent).div_ceil(100).max(1);
        self.sorted.get(rank - 1).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples() {
        let samples = Samples::new((1..=200).rev().collect());
        assert_eq!(samples.percentile(0), Some(1));
        assert_eq!(samples.percentile(10), Some(20));
        assert_eq!(samples.percentile(50), Some(100));
        assert_eq!(samples.percentile(99), Some(198));
        assert_eq!(samples.percentile(100), Some(200));
        assert_eq!((samples.count(), samples.total()), (200, 20_100));
    }

    #[test]
    fn the_middle_leaves_out_a_tenth_at_each_end() {
        let samples = [1, 5, 5, 5, 5, 7, 7, 7, 7, 1000];
        assert_eq!(Samples::new(samples.to_vec()).middle(), Some(6.0));
        assert_eq!(Samples::new(vec![3, 4]).middle(), Some(3.5));
        assert_eq!(Samples::new(Vec::new()).middle(), None);
    }

    #[test]
    fn few_samples() {
        assert_eq!(Samples::new(Vec::new()).percentile(50), None);
        let one = Samples::new(vec![7]);
        assert_eq!((one.percentile(1), one.percentile(100)), (Some(7), Some(7)));
        let two = Samples::new(vec![9, 3]);
        assert_eq!((two.percentile(50), two.percentile(51)), (Some(3), Some(9)));
    }
}

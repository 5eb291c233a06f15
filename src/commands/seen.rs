// SPDX-License-Identifier: GPL-2.0-only
//! Cgroups that were looked at, each with the one above it: what is known of those below one that
//! cannot be listed any more.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// Their ids, each with that of the cgroup above it.
#[derive(Debug, Default)]
pub struct Seen {
    above: HashMap<u64, u64>,
}

impl Seen {
    /// Was it looked at?
    pub fn contains(&self, id: u64) -> bool {
        self.above.contains_key(&id)
    }

    /// It is, now; the root has 0 above it.
    pub fn insert(&mut self, id: u64, above: u64) {
        self.above.insert(id, above);
    }

    /// It is to be looked at again.
    pub fn remove(&mut self, id: u64) {
        self.above.remove(&id);
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.above.len()
    }

    /// Takes in from `before` what is below one of `closed` and was not seen this time, unless it is
    /// known to be `gone`.
    pub fn keep_below(&mut self, before: &Seen, closed: &HashSet<u64>, gone: impl Fn(u64) -> bool) {
        let up = |id: &u64| before.above.get(id).copied();
        let hidden = before.above.iter().filter(|(id, _)| !self.contains(**id));
        let hidden = hidden.filter(|(_, above)| {
            std::iter::successors(Some(**above), up).any(|id| closed.contains(&id))
        });
        let hidden: Vec<(u64, u64)> = hidden.map(|(id, above)| (*id, *above)).collect();
        self.above
            .extend(hidden.into_iter().filter(|(id, _)| !gone(*id)));
    }
}

/// The way down to where a walk is, which visits those above first.
#[derive(Debug, Default)]
pub struct Way(Vec<(PathBuf, u64)>);

impl Way {
    /// It has come to this one; returns the one above it, 0 for the first.
    pub fn enter(&mut self, path: &Path, id: u64) -> u64 {
        while self.0.last().is_some_and(|(up, _)| !path.starts_with(up)) {
            self.0.pop();
        }
        let above = self.0.last().map_or(0, |(_, id)| *id);
        self.0.push((path.to_owned(), id));
        above
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(pairs: &[(u64, u64)]) -> Seen {
        Seen {
            above: pairs.iter().copied().collect(),
        }
    }

    /// 1 has 2 and 5, 2 has 3 and 4.
    const ALL: [(u64, u64); 5] = [(1, 0), (2, 1), (3, 2), (4, 2), (5, 1)];

    #[test]
    fn what_is_below_a_closed_one_stays_and_nothing_else() {
        let closed = HashSet::from([2]);
        let mut now = seen(&[(1, 0), (2, 1)]);
        now.keep_below(&seen(&ALL), &closed, |_| false);
        assert_eq!(now.count(), 4);
        assert!(now.contains(3) && now.contains(4));
        assert!(
            !now.contains(5),
            "it has gone, and is below none that is closed"
        );
        let mut now = seen(&[(1, 0), (2, 1)]);
        now.keep_below(&seen(&ALL), &closed, |id| id == 4);
        assert!(now.contains(3) && !now.contains(4));
    }

    #[test]
    fn a_walk_knows_who_is_above() {
        let mut way = Way::default();
        let at = |(path, id, above): (&str, u64, u64)| {
            assert_eq!(way.enter(Path::new(path), id), above, "{path}");
        };
        [
            ("/", 1, 0),
            ("/a", 2, 1),
            ("/a/b", 3, 2),
            ("/a/c", 4, 2),
            ("/ab", 5, 1),
        ]
        .into_iter()
        .for_each(at);
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! The profiles of an attachment: which policy's values are in which slot of the programs' map.
//!
//! A cgroup knows its profile by an id: the slot, and above it how often the slot was given away.
//! One whose id is not in its slot any more looks for another, so nobody takes over what a slot
//! gets later.

use std::collections::HashSet;

use super::abi::{self, Bind, Load, PROFILES, Tunables};
use super::rule::Rules;

/// The values of each slot.
#[derive(Clone)]
pub struct Profiles(Vec<Tunables>);

impl Profiles {
    /// `first` in slot 0, which those have who were assigned none; it stays there.  `after`: the
    /// generation that ids come after, another one for each load: cgroups that were kept still
    /// have the ids of the load before.
    pub fn new(first: &Tunables, after: u32) -> Self {
        let free = Tunables {
            last_id: after % (u32::MAX / PROFILES as u32) * PROFILES as u32,
            ..Tunables::default()
        };
        let mut slots = vec![free; PROFILES];
        slots[0] = Tunables {
            id: next(free.last_id, 0),
            ..*first
        };
        Profiles(slots)
    }

    /// From what the programs' map has; `None` for another length.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let size = size_of::<Tunables>();
        if bytes.len() != PROFILES * size {
            return None;
        }
        let slots = bytes.chunks_exact(size).map(abi::from_bytes);
        Some(Profiles(slots.collect::<Option<_>>()?))
    }

    /// As the programs' map has them.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(abi::as_bytes).copied().collect()
    }

    /// The one that an id was given to, or that of slot 0 where it has gone since.
    pub fn of(&self, id: u32) -> &Tunables {
        let given = self.0.iter().find(|one| one.id == id && id != 0);
        given.unwrap_or(&self.0[0])
    }

    /// Each that there is.
    pub fn iter(&self) -> impl Iterator<Item = &Tunables> {
        self.0.iter().filter(|one| one.id != 0)
    }

    /// Gives each of `wanted` a slot and returns the ids in their order: one that is there keeps
    /// its slot, any other gets a slot that nobody has.  `None`: there are not enough.
    #[must_use]
    pub fn add(&mut self, wanted: &[Tunables]) -> Option<Vec<u32>> {
        wanted.iter().map(|one| self.place(one)).collect()
    }

    fn place(&mut self, wanted: &Tunables) -> Option<u32> {
        let same = |one: &&Tunables| {
            let with_its_id = Tunables {
                id: one.id,
                ..*wanted
            };
            abi::as_bytes(&with_its_id) == abi::as_bytes(*one)
        };
        if let Some(there) = self.iter().find(same) {
            return Some(there.id);
        }
        let free = self.0.iter().position(|one| one.id == 0)?;
        let id = next(self.0[free].last_id, free);
        self.0[free] = Tunables { id, ..*wanted };
        Some(id)
    }

    /// Takes away all but slot 0 and `ids`.
    pub fn keep(&mut self, ids: &HashSet<u32>) {
        for one in self.0.iter_mut().skip(1).filter(|one| one.id != 0) {
            if !ids.contains(&one.id) {
                // Its generation stays, for who has the slot next.
                one.last_id = one.id;
                one.id = 0;
            }
        }
    }
}

/// The id of a slot after the one it had last; never 0.
fn next(last: u32, slot: usize) -> u32 {
    let size = PROFILES as u32;
    let generation = (last / size).wrapping_add(1) % (u32::MAX / size);
    generation.max(1) * size + slot as u32
}

/// What programs are loaded for: the rules that any of `profiles` has, and `more`, which may come
/// to be.
pub fn load(profiles: &Profiles, more: &Tunables) -> Load {
    Load {
        abi: abi::ABI,
        rules: rules(profiles).0 | more.rules,
        bind: Bind(bind(profiles).0 | more.bind.0),
        page_shift: more.page_shift,
        largest_pages: more.largest_pages,
        pud_pages: more.pud_pages,
        takes_back: more.takes_back,
        dry_run: 0,
        announces: 0,
    }
}

/// The rules that any of them has.
pub fn rules(profiles: &Profiles) -> Rules {
    Rules(profiles.iter().fold(0, |rules, one| rules | one.rules))
}

/// What any of them binds besides.
pub fn bind(profiles: &Profiles) -> Bind {
    Bind(profiles.iter().fold(0, |bind, one| bind | one.bind.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cgroups that were kept still have the ids of the load before.
    #[test]
    fn another_load_gives_other_ids() {
        let ids = |after| {
            let mut profiles = Profiles::new(&named("root"), after);
            let others = profiles.add(&[named("a"), named("b")]).unwrap();
            [vec![profiles.of(0).id], others].concat()
        };
        let mut all: Vec<u32> = [0, 1, 77, u32::MAX - 1].map(ids).concat();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 12);
    }

    fn named(name: &str) -> Tunables {
        let mut one = Tunables {
            rules: 2,
            bind: abi::Bind(0),
            ..Tunables::default()
        };
        abi::set_text(&mut one.policy, name);
        one
    }

    fn names(profiles: &Profiles) -> Vec<String> {
        profiles.iter().map(|one| abi::text(&one.policy)).collect()
    }

    #[test]
    fn the_same_values_have_one_slot() {
        let mut profiles = Profiles::new(&named("root"), 0);
        let ids = profiles
            .add(&[named("a"), named("root"), named("b"), named("a")])
            .unwrap();
        assert_eq!(ids[0], ids[3]);
        assert_eq!(names(&profiles), ["root", "a", "b"]);
        assert_eq!(
            ids.iter().map(|id| id % 64).collect::<Vec<_>>(),
            [1, 0, 2, 1]
        );
        assert_eq!(abi::text(&profiles.of(ids[2]).policy), "b");
    }

    /// A cgroup that still has the old id must not get what is in its slot now.
    #[test]
    fn a_slot_that_is_given_again_has_another_id() {
        let mut profiles = Profiles::new(&named("root"), 0);
        let old = profiles.add(&[named("a")]).unwrap()[0];
        profiles.keep(&HashSet::new());
        assert_eq!(names(&profiles), ["root"]);
        let new = profiles.add(&[named("b")]).unwrap()[0];
        assert_eq!(old % 64, new % 64);
        assert_ne!(old, new);
        assert_eq!(abi::text(&profiles.of(old).policy), "root");
        // And the same once more, in the place of itself.
        profiles.keep(&HashSet::new());
        let third = profiles.add(&[named("b")]).unwrap()[0];
        assert!(third != new && third != old);
    }

    #[test]
    fn there_are_as_many_as_slots() {
        let mut profiles = Profiles::new(&named("root"), 0);
        let many: Vec<Tunables> = (0..63).map(|i| named(&format!("p{i}"))).collect();
        assert_eq!(profiles.add(&many).unwrap().len(), 63);
        assert!(profiles.add(&many).is_some(), "they are there");
        assert!(profiles.add(&[named("more")]).is_none());
        profiles.keep(&HashSet::new());
        assert!(profiles.add(&[named("more")]).is_some());
    }

    #[test]
    fn ids_are_never_zero_and_end_nowhere() {
        assert_eq!(next(0, 0), 64);
        assert_eq!(next(u32::MAX, 5) % 64, 5);
        let mut id = 5;
        for _ in 0..10 {
            let then = next(id, 5);
            assert!(then != id && then >= 64);
            id = then;
        }
        assert!(next(u32::MAX - 63 + 5, 5) >= 64);
    }

    #[test]
    fn the_map_comes_back() {
        let mut profiles = Profiles::new(&named("root"), 0);
        assert!(profiles.add(&[named("a")]).is_some());
        let back = Profiles::from_bytes(&profiles.bytes()).unwrap();
        assert_eq!(names(&back), ["root", "a"]);
        assert!(Profiles::from_bytes(&[0; 7]).is_none());
    }

    #[test]
    fn programs_are_loaded_for_all_of_them() {
        let mut profiles = Profiles::new(&named("root"), 0);
        let other = Tunables {
            rules: 8,
            bind: abi::Bind(2),
            ..named("a")
        };
        assert!(profiles.add(&[other]).is_some());
        let more = Tunables {
            rules: 16,
            bind: abi::Bind(0),
            page_shift: 14,
            ..Tunables::default()
        };
        let load = load(&profiles, &more);
        assert_eq!((load.rules, load.bind.0, load.page_shift), (26, 2, 14));
        assert_eq!(rules(&profiles).0, 10);
    }
}

//! The entities of a process, with their slots by looks. The lowest free slot is found without a
//! pass over the entities, so a process may have any number of entities with equal looks.

use super::entity::Looks;
use crate::ids::EntityId;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

#[derive(Debug, Clone, Default)]
pub(crate) struct Members {
    all: BTreeSet<EntityId>,
    of_looks: FxHashMap<Looks, Numbers>,
}

#[derive(Debug, Clone, Default)]
struct Numbers {
    /// The entities that exist, with their numbers. Two entities have one number if a timer was
    /// replaced and later started again.
    holders: BTreeSet<(u32, EntityId)>,
    /// Every number below `passed` that is free, and some that are not.
    maybe_free: BTreeSet<u32>,
    /// The end of the numbers that the search for a free one has passed.
    passed: u32,
}

impl Members {
    pub(crate) fn iter(&self) -> impl Iterator<Item = EntityId> + '_ {
        self.all.iter().copied()
    }

    pub(super) fn has(&self, e: EntityId) -> bool {
        self.all.contains(&e)
    }

    pub(super) fn add(&mut self, looks: Looks, number: u32, e: EntityId) {
        self.all.insert(e);
        let numbers = self.of_looks.entry(looks).or_default();
        numbers.holders.insert((number, e));
        // The entity may be one that does not need its number.
        numbers.may_be_free(number);
    }

    pub(super) fn remove(&mut self, looks: &Looks, number: u32, e: EntityId) {
        self.all.remove(&e);
        let Some(numbers) = self.of_looks.get_mut(looks) else {
            return;
        };
        numbers.holders.remove(&(number, e));
        numbers.may_be_free(number);
        if numbers.holders.is_empty() {
            self.of_looks.remove(looks);
        }
    }

    /// Records that the holders of a number may no longer need it.
    pub(super) fn may_be_free(&mut self, looks: &Looks, number: u32) {
        if let Some(numbers) = self.of_looks.get_mut(looks) {
            numbers.may_be_free(number);
        }
    }

    pub(super) fn holders(
        &self,
        looks: &Looks,
        number: u32,
    ) -> impl Iterator<Item = EntityId> + '_ {
        let numbers = self.of_looks.get(looks).into_iter();
        numbers.flat_map(move |numbers| numbers.holders_of(number))
    }

    /// Returns the lowest number that no entity with these looks needs, as `needs` reports. The
    /// entity `but`, which is given with its number, needs none.
    pub(super) fn lowest_free(
        &mut self,
        looks: &Looks,
        but: Option<(u32, EntityId)>,
        needs: impl Fn(EntityId) -> bool,
    ) -> u32 {
        let Some(numbers) = self.of_looks.get_mut(looks) else {
            return 0;
        };
        let own = but.filter(|own| numbers.holders.contains(own));
        let others_need = |numbers: &Numbers, number| {
            let mut holders = numbers.holders_of(number);
            holders.any(|e| but.is_none_or(|but| but.1 != e) && needs(e))
        };
        let own = own.map(|own| own.0);
        let own = own.filter(|&number| !others_need(numbers, number));
        while let Some(&number) = numbers.maybe_free.first() {
            if !others_need(numbers, number) {
                return own.map_or(number, |own| own.min(number));
            }
            numbers.maybe_free.pop_first();
        }
        while others_need(numbers, numbers.passed) {
            numbers.passed += 1;
        }
        own.map_or(numbers.passed, |own| own.min(numbers.passed))
    }
}

impl Numbers {
    fn may_be_free(&mut self, number: u32) {
        if number < self.passed {
            self.maybe_free.insert(number);
        }
    }

    fn holders_of(&self, number: u32) -> impl Iterator<Item = EntityId> + '_ {
        let from = self.holders.range((number, EntityId::new(0))..);
        from.take_while(move |holder| holder.0 == number)
            .map(|holder| holder.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entities::EntityKind;
    use proptest::prelude::*;

    const LOOKS: Looks = Looks {
        kind: EntityKind::Timer,
        node: None,
        name: None,
        period_ns: None,
    };

    #[derive(Debug, Clone, Copy)]
    struct Holder {
        e: EntityId,
        number: u32,
        is_spent: bool,
    }

    fn lowest_free(holders: &[Holder], but: Option<EntityId>) -> u32 {
        let needed = |n: u32| {
            let mut others = holders.iter().filter(|h| Some(h.e) != but);
            others.any(|h| h.number == n && !h.is_spent)
        };
        (0..).find(|&n| !needed(n)).unwrap()
    }

    proptest! {
        #[test]
        fn the_lowest_number_that_nobody_needs_is_found(
            actions in proptest::collection::vec((0..7u8, any::<prop::sample::Index>()), 0..200)
        ) {
            let (mut members, mut all) = (Members::default(), Vec::<Holder>::new());
            for (n, (action, which)) in actions.into_iter().enumerate() {
                let which = (!all.is_empty()).then(|| which.index(all.len()));
                let but = which.filter(|_| action == 3).map(|i| all[i]);
                let is_needed = |e| all.iter().any(|h| h.e == e && !h.is_spent);
                let own = but.map(|h| (h.number, h.e));
                let number = members.lowest_free(&LOOKS, own, is_needed);
                prop_assert_eq!(number, lowest_free(&all, but.map(|h| h.e)));
                match (action, which) {
                    (0, Some(i)) => {
                        let gone = all.swap_remove(i);
                        members.remove(&LOOKS, gone.number, gone.e);
                    }
                    (1, Some(i)) => {
                        all[i].is_spent = true;
                        members.may_be_free(&LOOKS, all[i].number);
                    }
                    (2, Some(i)) => all[i].is_spent = false,
                    (3, Some(i)) => {
                        members.remove(&LOOKS, all[i].number, all[i].e);
                        all[i].number = number;
                        members.add(LOOKS, number, all[i].e);
                    }
                    (4, _) => {
                        let (number, e) = (number + 3, EntityId::new(n));
                        all.push(Holder { e, number, is_spent: false });
                        members.add(LOOKS, number, e);
                    }
                    _ => {
                        let e = EntityId::new(n);
                        all.push(Holder { e, number, is_spent: false });
                        members.add(LOOKS, number, e);
                    }
                }
                for h in &all {
                    prop_assert!(members.holders(&LOOKS, h.number).any(|e| e == h.e));
                }
            }
            for h in all {
                members.remove(&LOOKS, h.number, h.e);
            }
            prop_assert!(members.of_looks.is_empty() && members.all.is_empty());
        }
    }
}

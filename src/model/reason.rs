// SPDX-License-Identifier: GPL-2.0-only
//! Why the kernel asks, and what there is of each reason.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

use super::abi::ReasonNumber;

/// `enum bpf_mthp_reason`: why the kernel asks, by its own numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "documented in bpf/hook.h")]
pub enum Reason {
    Fault = ReasonNumber::BPF_MTHP_FAULT.0 as isize,
    Swapin = ReasonNumber::BPF_MTHP_SWAPIN.0 as isize,
    Khugepaged = ReasonNumber::BPF_MTHP_KHUGEPAGED.0 as isize,
    Collapse = ReasonNumber::BPF_MTHP_COLLAPSE.0 as isize,
    Reclaim = ReasonNumber::BPF_MTHP_RECLAIM.0 as isize,
}

impl Reason {
    /// Those that are known here.  A later kernel may have more, which pass unchanged.
    pub const ALL: [Reason; NR_REASONS - 1] = [
        Reason::Fault,
        Reason::Swapin,
        Reason::Khugepaged,
        Reason::Collapse,
        Reason::Reclaim,
    ];

    /// As options and output call it.
    pub const fn name(self) -> &'static str {
        match self {
            Reason::Fault => "fault",
            Reason::Swapin => "swapin",
            Reason::Khugepaged => "khugepaged",
            Reason::Collapse => "collapse",
            Reason::Reclaim => "reclaim",
        }
    }

    /// As the kernel calls it.
    pub const fn enumerator(self) -> &'static str {
        match self {
            Reason::Fault => "BPF_MTHP_FAULT",
            Reason::Swapin => "BPF_MTHP_SWAPIN",
            Reason::Khugepaged => "BPF_MTHP_KHUGEPAGED",
            Reason::Collapse => "BPF_MTHP_COLLAPSE",
            Reason::Reclaim => "BPF_MTHP_RECLAIM",
        }
    }
}

/// `MTHP_NR_REASONS`: places of an array by reason.  There is no reason 0.
pub const NR_REASONS: usize = Reason::Reclaim as usize + 1;

/// An array by reason.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByReason<T>(pub [T; NR_REASONS]);

impl<T: Copy + Default> ByReason<T> {
    /// What `of` says for each reason.
    pub fn new(of: impl Fn(Reason) -> T) -> Self {
        let mut values = Self([T::default(); NR_REASONS]);
        for reason in Reason::ALL {
            values[reason] = of(reason);
        }
        values
    }

    /// The same for each of them.
    pub fn each(value: T) -> Self {
        Self::new(|_| value)
    }

    /// What `of` makes of each value.
    pub fn map<U: Copy + Default>(&self, of: impl Fn(T) -> U) -> ByReason<U> {
        ByReason::new(|reason| of(self[reason]))
    }

    /// Each reason with its value.
    pub fn iter(&self) -> impl Iterator<Item = (Reason, T)> + '_ {
        Reason::ALL.into_iter().map(|reason| (reason, self[reason]))
    }
}

impl<T> Index<Reason> for ByReason<T> {
    type Output = T;

    fn index(&self, reason: Reason) -> &T {
        &self.0[reason as usize]
    }
}

impl<T> IndexMut<Reason> for ByReason<T> {
    fn index_mut(&mut self, reason: Reason) -> &mut T {
        &mut self.0[reason as usize]
    }
}

impl<T: PartialEq> PartialEq for ByReason<T> {
    fn eq(&self, other: &Self) -> bool {
        Reason::ALL.into_iter().all(|r| self[r] == other[r])
    }
}

impl<T: Eq> Eq for ByReason<T> {}

impl<T: JsonSchema> JsonSchema for ByReason<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("ByReason_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let each = generator.subschema_for::<T>();
        let names = Reason::ALL.map(Reason::name);
        let properties: BTreeMap<_, _> = names.iter().map(|name| (*name, each.clone())).collect();
        json_schema!({ "type": "object", "properties": properties, "required": names })
    }
}

impl<T: Serialize> Serialize for ByReason<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(Reason::ALL.into_iter().map(|r| (r.name(), &self[r])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_by_reason_has_no_reason_0() {
        let mut masks = ByReason::each(3_u64);
        masks.0[0] = 5;
        assert_eq!(masks, ByReason::each(3));
        assert_ne!(masks, ByReason::new(|r| u64::from(r != Reason::Swapin) * 3));
        assert_eq!(masks.iter().count(), Reason::ALL.len());
        assert_eq!(
            serde_json::to_string(&masks).unwrap(),
            r#"{"fault":3,"swapin":3,"khugepaged":3,"collapse":3,"reclaim":3}"#
        );
    }
}

//! Typed indices: each table has an index type of its own, and a missing entry is `None`.

/// Defines an index type. An `Option` of it takes the same space as the index.
macro_rules! index_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) struct $name(std::num::NonZeroU32);

        #[allow(dead_code)]
        impl $name {
            pub(crate) const fn new(index: usize) -> Self {
                assert!(index < u32::MAX as usize, "a table has more entries than its index type allows");
                match std::num::NonZeroU32::new(index as u32 + 1) {
                    Some(number) => Self(number),
                    None => unreachable!(),
                }
            }

            pub(crate) const fn index(self) -> usize {
                self.0.get() as usize - 1
            }
        }
    };
}

pub(crate) use index_type;

index_type! {
    /// The index of a vertex of the graph, which is a callback or a synchroniser.
    VertexId
}

index_type! {
    NameId
}

index_type! {
    OriginsId
}

index_type! {
    /// The index of a path: a sequence of vertices and the topics between them.
    PathId
}

index_type! {
    /// The index of a step. A step is one execution of a callback within a lineage.
    StepId
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_returns_its_index_and_an_optional_id_takes_no_extra_memory() {
        assert_eq!(VertexId::new(0).index(), 0);
        assert_eq!(VertexId::new(7).index(), 7);
        assert!(VertexId::new(1) < VertexId::new(2));
        assert_eq!(size_of::<Option<StepId>>(), size_of::<u32>());
    }
}

//! Sets of indices, for finding what is still in use.

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Marks(Vec<bool>);

impl Marks {
    pub(crate) fn add(&mut self, index: usize) -> bool {
        if self.0.len() <= index {
            self.0.resize(index + 1, false);
        }
        !std::mem::replace(&mut self.0[index], true)
    }

    pub(crate) fn has(&self, index: usize) -> bool {
        self.0.get(index).copied().unwrap_or(false)
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.0.contains(&true)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        let marked = self.0.iter().enumerate().filter(|(_, mark)| **mark);
        marked.map(|(index, _)| index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_marks_contains_exactly_the_added_indices() {
        let mut marks = Marks::default();
        assert!(marks.is_empty() && !marks.has(7));
        assert!(marks.add(7) && !marks.add(7) && marks.add(2));
        assert_eq!(marks.iter().collect::<Vec<_>>(), [2, 7]);
        assert!(marks.has(7) && !marks.has(3) && !marks.is_empty());
    }
}

//! A set that mostly holds one value or none: a hundred thousand documents have several of these each.

/// In order; one value takes no memory of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SmallSet<T>(Values<T>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Values<T> {
    None,
    One(T),
    /// Sorted, and at least two.
    Many(Vec<T>),
}

impl<T> Default for SmallSet<T> {
    fn default() -> SmallSet<T> {
        SmallSet(Values::None)
    }
}

impl<T> SmallSet<T> {
    pub fn as_slice(&self) -> &[T] {
        match &self.0 {
            Values::None => &[],
            Values::One(value) => std::slice::from_ref(value),
            Values::Many(values) => values,
        }
    }

    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.as_slice().iter()
    }

    pub fn first(&self) -> Option<&T> {
        self.as_slice().first()
    }

    pub fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    pub fn len(&self) -> usize {
        self.as_slice().len()
    }
}

impl<T: Ord> SmallSet<T> {
    pub fn contains(&self, value: &T) -> bool {
        self.as_slice().binary_search(value).is_ok()
    }

    /// Adds a value, unless it is there.
    pub fn insert(&mut self, value: T) {
        let Err(position) = self.as_slice().binary_search(&value) else {
            return;
        };
        self.0 = match std::mem::replace(&mut self.0, Values::None) {
            Values::None => Values::One(value),
            Values::One(other) if position == 0 => Values::Many(vec![value, other]),
            Values::One(other) => Values::Many(vec![other, value]),
            Values::Many(mut values) => {
                values.insert(position, value);
                Values::Many(values)
            }
        };
    }

    /// Takes a value out, if it is there.
    pub fn remove(&mut self, value: &T) {
        let Ok(position) = self.as_slice().binary_search(value) else {
            return;
        };
        self.0 = match std::mem::replace(&mut self.0, Values::None) {
            Values::None | Values::One(_) => Values::None,
            Values::Many(mut values) => {
                values.remove(position);
                match values.len() {
                    1 => values.pop().map_or(Values::None, Values::One),
                    _ => Values::Many(values),
                }
            }
        };
    }
}

impl<T: Ord> Extend<T> for SmallSet<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        for value in values {
            self.insert(value);
        }
    }
}

impl<T: Ord> FromIterator<T> for SmallSet<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> SmallSet<T> {
        let mut set = SmallSet::default();
        set.extend(values);
        set
    }
}

impl<'a, T> IntoIterator for &'a SmallSet<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::SmallSet;

    proptest! {
        #[test]
        fn it_is_a_set(steps in prop::collection::vec((any::<bool>(), 0_u8..6), 0..40)) {
            let (mut few, mut set) = (SmallSet::default(), BTreeSet::new());
            for (is_added, value) in steps {
                if is_added {
                    few.insert(value);
                    set.insert(value);
                } else {
                    few.remove(&value);
                    set.remove(&value);
                }
                prop_assert!(few.iter().eq(set.iter()));
                prop_assert_eq!(few.first(), set.first());
                prop_assert_eq!((few.len(), few.is_empty()), (set.len(), set.is_empty()));
                prop_assert!((0..6).all(|value| few.contains(&value) == set.contains(&value)));
                prop_assert_eq!(&few, &set.iter().copied().collect::<SmallSet<u8>>());
            }
        }
    }
}

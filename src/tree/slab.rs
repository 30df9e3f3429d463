//! Items by number. The number of one that was removed is given to another.

#[derive(Debug)]
pub(super) struct Slab<T> {
    items: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab {
            items: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    pub(super) fn get(&self, id: u32) -> Option<&T> {
        self.items.get(id as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        self.items.get_mut(id as usize)?.as_mut()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.items.iter_mut().flatten()
    }

    pub(super) fn insert(&mut self, item: T) -> u32 {
        if let Some(id) = self.free.pop() {
            self.items[id as usize] = Some(item);
            return id;
        }
        self.items.push(Some(item));
        u32::try_from(self.items.len() - 1).expect("no tree has four billion candidates")
    }

    pub(super) fn remove(&mut self, id: u32) -> Option<T> {
        let item = self.items.get_mut(id as usize)?.take()?;
        self.free.push(id);
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use crate::tree::slab::Slab;

    #[test]
    fn the_number_of_a_removed_item_is_given_to_the_next() {
        let mut slab = Slab::default();
        let [one, two] = ["one", "two"].map(|item| slab.insert(item));
        assert_eq!(slab.remove(one), Some("one"));
        assert_eq!((slab.remove(one), slab.get(one)), (None, None));
        assert_eq!(slab.insert("three"), one);
        assert_eq!(
            [slab.get(one), slab.get(two)],
            [Some(&"three"), Some(&"two")]
        );
    }
}

//! Dictionaries of columns with few distinct values.

/// The most distinct values of a column that is written with a dictionary.
pub(super) const MOST: usize = 2_048;

/// Twice as many slots and a power of two: a search ends soon.
const SLOTS: usize = 4 * MOST;

/// Numbers values in the order of their first appearance.
pub(super) struct Dictionary {
    values: Vec<u64>,
    /// 1 + the position in `values`, or 0 where the slot is free.
    slots: Vec<u32>,
}

impl Dictionary {
    pub(super) fn new() -> Dictionary {
        Dictionary {
            values: Vec::with_capacity(MOST),
            slots: vec![0; SLOTS],
        }
    }

    pub(super) fn clear(&mut self) {
        self.slots.fill(0);
        self.values.clear();
    }

    pub(super) fn values(&self) -> &[u64] {
        &self.values
    }

    /// The value's number, or `None` if the dictionary is full.
    pub(super) fn number(&mut self, value: u64) -> Option<u32> {
        let mut slot = home(value);
        loop {
            match self.slots[slot] {
                0 => break,
                taken if self.values[taken as usize - 1] == value => return Some(taken - 1),
                _ => slot = (slot + 1) % SLOTS,
            }
        }
        if self.values.len() == MOST {
            return None;
        }
        self.values.push(value);
        let number = self.values.len() as u32;
        self.slots[slot] = number;
        Some(number - 1)
    }

    /// Numbers all of `values`; `false` if they are too many different ones.
    pub(super) fn number_all(
        &mut self,
        values: impl Iterator<Item = u64>,
        numbers: &mut Vec<u32>,
    ) -> bool {
        self.clear();
        numbers.clear();
        let mut last = None;
        for value in values {
            let number = match last {
                Some((same, number)) if same == value => number,
                _ => match self.number(value) {
                    Some(number) => number,
                    None => return false,
                },
            };
            last = Some((value, number));
            numbers.push(number);
        }
        true
    }
}

/// Where the search for a value begins: the upper bits of a product with a large odd number.
fn home(value: u64) -> usize {
    (value.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - SLOTS.trailing_zeros())) as usize
}

//! The names of spans by their numbers, and the other way round.

use std::collections::HashMap;

/// Names that are told apart, of all programs.
const MOST: usize = 4096;
/// What a span is called for whose name there is no room.
const UNNAMED: &str = "(unnamed)";

pub(super) struct SpanNames {
    all: Vec<String>,
    numbers: HashMap<String, u16>,
}

impl SpanNames {
    /// `all`: those that have numbers already. Where two are alike, the first one's number counts.
    pub(super) fn new(all: Vec<String>) -> Self {
        let mut numbers = HashMap::new();
        for (name, number) in all.iter().zip(0..) {
            numbers.entry(name.clone()).or_insert(number);
        }
        Self { all, numbers }
    }

    pub(super) fn all(&self) -> &[String] {
        &self.all
    }

    /// The number of a name, which it gets if it has none.
    pub(super) fn number_of(&mut self, name: Option<String>) -> u16 {
        let mut name = name.unwrap_or_else(|| UNNAMED.into());
        if self.all.len() >= MOST && !self.numbers.contains_key(&name) {
            name = UNNAMED.into();
        }
        let next = self.all.len() as u16;
        *self.numbers.entry(name).or_insert_with_key(|name| {
            self.all.push(name.clone());
            next
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_number_and_those_without_room_share_one() {
        let mut names = SpanNames::new(vec!["a".into(), "b".into(), "a".into()]);
        assert_eq!(names.number_of(Some("a".into())), 0);
        assert_eq!(names.number_of(Some("new".into())), 3);
        for number in 0..2 * MOST {
            names.number_of(Some(number.to_string()));
        }
        let unnamed = names.number_of(None);
        assert_eq!(names.number_of(Some("one more".into())), unnamed);
        assert_eq!(names.all()[usize::from(unnamed)], UNNAMED);
        assert_eq!(names.number_of(Some("b".into())), 1);
        assert_eq!(names.all().len(), MOST + 1);
    }
}

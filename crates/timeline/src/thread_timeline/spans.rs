//! Of which time what threads do is kept.

/// Stretches of time, sorted and apart: outside of them nothing is kept.
#[derive(Debug, Clone, Default)]
pub struct Spans(Vec<(u64, u64)>);

impl Spans {
    /// Of stretches in any order.
    #[must_use]
    pub fn of(mut stretches: Vec<(u64, u64)>) -> Self {
        stretches.sort_unstable();
        let mut apart: Vec<(u64, u64)> = Vec::new();
        for (from, to) in stretches {
            match apart.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => apart.push((from, to)),
            }
        }
        Self(apart)
    }

    pub(super) fn touch(&self, from: u64, to: u64) -> bool {
        let after = self.0.partition_point(|(_, end)| *end < from);
        self.0.get(after).is_some_and(|(begin, _)| *begin <= to)
    }
}

//! The time of a request that nothing accounts for yet.

/// The parts of a time that nothing has been found for yet: intervals in order, apart.
pub(super) struct Gaps(Vec<(u64, u64)>);

impl Gaps {
    /// All of this interval; nothing if it ends before it begins.
    pub(super) fn of(from: u64, to: u64) -> Self {
        Self(vec![(from, to.max(from))])
    }

    /// What of this interval is still there.
    pub(super) fn within(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> {
        let first = self.0.partition_point(|gap| gap.1 <= from);
        let within = self.0[first..].iter().take_while(move |gap| gap.0 < to);
        within.map(move |gap| (gap.0.max(from), gap.1.min(to)))
    }

    /// Takes what of this interval is still there; returns how long that is.
    pub(super) fn take(&mut self, from: u64, to: u64) -> u64 {
        if from >= to {
            return 0;
        }
        let first = self.0.partition_point(|gap| gap.1 <= from);
        let last = self.0.partition_point(|gap| gap.0 < to);
        if first >= last {
            return 0;
        }
        let (start, end) = (self.0[first].0, self.0[last - 1].1);
        let taken = self.0[first..last]
            .iter()
            .map(|gap| gap.1.min(to) - gap.0.max(from))
            .sum();
        let left = [(start, from), (to, end)];
        let left = left.into_iter().filter(|(from, to)| from < to);
        self.0.splice(first..last, left);
        taken
    }

    /// How long they are together.
    pub(super) fn sum(&self) -> u64 {
        self.0.iter().map(|(from, to)| to - from).sum()
    }
}

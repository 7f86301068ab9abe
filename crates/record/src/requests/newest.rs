//! Which of many stay where there is no more room: those that were touched last.

/// The moment after which at most that many of these lie: the later ones.
pub(super) fn newest_from(mut moments: Vec<u64>, most: usize) -> u64 {
    let Some(surplus) = moments.len().checked_sub(most + 1) else {
        return 0;
    };
    *moments.select_nth_unstable(surplus).1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_those_after_a_moment() {
        let moments = vec![5, 1, 9, 3, 7];
        assert_eq!(newest_from(moments.clone(), 2), 5);
        assert_eq!(newest_from(moments.clone(), 0), 9);
        assert_eq!(newest_from(moments.clone(), 5), 0);
        assert_eq!(newest_from(moments, 9), 0);
    }
}

//! A kind's figures as text.

use super::line::Room;
use super::snapshot::Figures;
use crate::units::count;

/// p50, p99 and p99.9; with a ~ where so few spans are known that it is just the slowest one.
pub fn quantile_texts(figures: &Figures, room: &Room) -> [String; 3] {
    let Some(quantiles) = figures.quantiles else {
        return ["-".into(), "-".into(), "-".into()];
    };
    let enough = [2, 100, 1000];
    std::array::from_fn(|place| {
        let few = figures.spans < enough[place];
        let time = room.time(quantiles[place] as f64);
        format!("{}{time}", if few { "~" } else { "" })
    })
}

/// Spans a second, one digit behind the point where there are few.
pub fn rate_text(rate: f64) -> String {
    if rate > 0.0 && rate < 9.95 {
        format!("{rate:.1}")
    } else {
        count(rate.round() as u64)
    }
}

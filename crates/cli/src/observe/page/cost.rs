//! What observing took from the application's speed, with its interval.

use tailscope_observe::Report;
use tailscope_observe::report::Effect;
use tailscope_timeline::escaped;

use super::axis::Axis;
use super::svg::{Anchor, WIDE, Words, dot, drawn, label, line, percent, picture, width_of};
use crate::units::count;

const HEIGHT: f64 = 112.0;
const MIDDLE: f64 = 58.0;
const BASE: f64 = 80.0;
const SIDE: f64 = 26.0;

/// What it comes to, in one sentence. Where the interval can't tell it from nothing, how much it may
/// be is what is known.
pub fn in_words(effect: &Effect) -> String {
    match effect {
        Effect { low, .. } if *low > 0.0 => {
            format!("observing took {} of its speed", percent(effect.share))
        }
        Effect { high, .. } if *high < 0.0 => {
            format!("it was {} faster while observed", percent(-effect.share))
        }
        _ => format!(
            "observing took at most {} of its speed",
            percent(effect.high)
        ),
    }
}

/// With its interval: `0.42 % (95 %: 0.10 % to 0.74 %)`.
pub fn interval(effect: &Effect) -> String {
    format!("95 %: {} to {}", percent(effect.low), percent(effect.high))
}

/// The card.
pub fn of(report: &Report) -> String {
    let title = "<section><h2>What observing cost the application</h2>";
    let Some(effect) = &report.effect else {
        return format!(
            "{title}<p class=\"say\">Unknown: there were too few pauses, or {} grew too rarely to \
             tell its speed in one; <code>--progress</code> names another counter.</p></section>\n",
            escaped(&report.progress)
        );
    };
    let words = Words {
        name: "What observing took from the application's speed".into(),
        about: format!("{}, {}", percent(effect.share), interval(effect)),
    };
    let verdict = verdict(report, effect);
    format!(
        "{title}<p class=\"say\">The observer paused {} times, at random. The dot says how much \
         slower {} was while it sampled than in the pauses beside, the bar where the truth lies \
         in 95 of 100 such runs.{verdict}</p>\n{}</section>\n",
        count(effect.phases as u64),
        escaped(&report.progress),
        drawn(WIDE, |width| line_of(effect, report.budget, &words, width)),
    )
}

fn verdict(report: &Report, effect: &Effect) -> String {
    let Some(budget) = report.budget else {
        return String::new();
    };
    format!(
        " That is {} the budget of {}.",
        crate::observe::text::verdict(effect, budget),
        percent(budget)
    )
}

fn line_of(effect: &Effect, budget: Option<f64>, words: &Words, width: f64) -> String {
    let shares = [
        effect.low,
        effect.high,
        effect.share,
        0.0,
        budget.unwrap_or(0.0),
    ];
    let low = shares.into_iter().fold(f64::MAX, f64::min) * 100.0;
    let high = shares.into_iter().fold(f64::MIN, f64::max) * 100.0;
    let air = ((high - low) * 0.12).max(0.05);
    let axis = Axis::linear(low - air, high + air);
    let x = |share: f64| SIDE + axis.place(share * 100.0) * (width - 2.0 * SIDE);
    let mut parts = line((SIDE, BASE), (width - SIDE, BASE), "edge");
    for (value, text) in axis.ticks((width / 110.0) as usize) {
        let at = x(value / 100.0);
        parts += &line((at, BASE), (at, BASE + 4.0), "edge");
        let text = format!("{} %", text.replace('-', "\u{2212}"));
        parts += &label((at, BASE + 18.0), &text, "tick", Anchor::Middle);
    }
    parts += &line((x(0.0), 8.0), (x(0.0), BASE), "zero");
    parts += &label((x(0.0) - 5.0, 16.0), "no effect", "row", Anchor::End);
    if let Some(budget) = budget {
        let at = x(budget);
        parts += &line((at, 8.0), (at, BASE), "goal");
        parts += &label((at + 5.0, 16.0), "budget", "row", Anchor::Start);
    }
    parts += &line(
        (x(effect.low), MIDDLE),
        (x(effect.high), MIDDLE),
        "interval",
    );
    let at = x(effect.share);
    parts += &dot((at, MIDDLE), "ink");
    let way = if effect.share < 0.0 {
        "faster"
    } else {
        "slower"
    };
    let text = format!("{} {way}", percent(effect.share.abs()));
    let half = width_of(&text) / 2.0 + 6.0;
    let middle = at.clamp(half, width - half);
    parts += &label((middle, MIDDLE - 12.0), &text, "worth", Anchor::Middle);
    picture(width, HEIGHT, words, &parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_and_the_budget_are_on_the_line() {
        let effect = Effect {
            share: 0.018,
            low: 0.012,
            high: 0.024,
            phases: 120,
        };
        let words = Words {
            name: "cost".into(),
            about: interval(&effect),
        };
        let svg = line_of(&effect, Some(0.01), &words, WIDE);
        assert!(
            svg.contains("1.80 % slower") && svg.contains("budget"),
            "{svg}"
        );
        assert!(svg.contains("<desc>95 %: 1.20 % to 2.40 %</desc>"), "{svg}");
    }

    #[test]
    fn what_can_not_be_told_from_nothing_is_told_by_its_upper_end() {
        let words = |low, share, high| {
            let phases = 50;
            in_words(&Effect {
                share,
                low,
                high,
                phases,
            })
        };
        assert_eq!(
            words(0.01, 0.02, 0.03),
            "observing took 2.00 % of its speed"
        );
        let open = words(-0.002, 0.094, 0.182);
        assert_eq!(open, "observing took at most 18.20 % of its speed");
        assert_eq!(
            words(-0.03, -0.02, -0.01),
            "it was 2.00 % faster while observed"
        );
    }
}

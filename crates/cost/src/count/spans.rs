//! Spans of the SDK.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{HookRate, combined};
use crate::sdk_recorder::SdkRecorder;
use crate::statistics::Estimate;
use crate::target::Target;

/// The share of the spans that is metered: the others cost next to nothing.
const SAMPLE: f64 = 0.01;
/// The program looks for the recorder at its next span.
const FOUND: Duration = Duration::from_millis(150);
const WINDOW: Duration = Duration::from_millis(110);
const WINDOWS: usize = 4;

/// Spans a second of the program.
pub(super) fn count(target: &Target) -> HookRate {
    let counted = SdkRecorder::start(&target.pids, SAMPLE).map(|recorder| {
        sleep(FOUND);
        let window = |_| {
            let (begin, from) = (Instant::now(), recorder.rows());
            sleep(WINDOW);
            (recorder.rows() - from, begin.elapsed().as_secs_f64())
        };
        let windows: Vec<(u64, f64)> = (0..WINDOWS).map(window).collect();
        combined(&windows).scaled(1.0 / SAMPLE)
    });
    HookRate {
        rate: counted.clone().unwrap_or(Estimate::exact(0.0)),
        stepped: false,
        unknown: counted
            .err()
            .map(|why| format!("SDK spans can't be counted: {why}")),
    }
}

//! What a span of the SDK takes while a recorder keeps it.

use std::ffi::OsString;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::FEWEST;
use super::process::Process;
use super::tasks::Task;
use crate::calibrate::Found;
use crate::sdk_recorder::SdkRecorder;
use crate::statistics::{Estimate, blocked};

/// How long the process may take to find the recorder.
const PATIENCE: Duration = Duration::from_secs(2);
const TURNS: usize = 40;
/// What is timed is a span of the Rust SDK with nothing in it, 103 ns on an EPYC. One of the C SDK took 55
/// there, and 35 to 40 in a program whose work the processor does beside it.
const LEAST_SHARE: f64 = 0.35;
/// More rows than the memory holds that the SDK shares with the recorder: each of its pages costs a fault
/// when it is first used.
const REGION_ROWS: u64 = 200_000;
/// Between two phases the recorder, on the same CPU, takes the rows: spans whose rows find no room cost
/// less.
const DRAINED: Duration = Duration::from_millis(4);

/// Times it.
pub fn measure(command: &[OsString]) -> Found {
    let mut process = Process::start(command)?;
    let times = Task::Spans.times();
    let bare = process.each(Task::Spans, times)?;
    let recorder = SdkRecorder::start(&[process.pid()], 1.0)?;
    let begin = Instant::now();
    while recorder.rows() < REGION_ROWS {
        if begin.elapsed() > PATIENCE {
            return Err(match recorder.rows() {
                0 => "the SDK did not find the recorder".to_owned(),
                _ => "the recorder is too slow here".to_owned(),
            });
        }
        process.each(Task::Spans, times)?;
        sleep(DRAINED);
    }
    let turn = |_| {
        sleep(DRAINED);
        Ok(process.each(Task::Spans, times)? - bare)
    };
    let turns = (0..TURNS).map(turn).collect::<Result<Vec<f64>, String>>()?;
    let estimate = blocked(&turns).filter(|_| turns.len() >= FEWEST);
    let rust = estimate.ok_or("too few turns")?;
    Ok((of_any_language(rust), TURNS as u64 * times))
}

/// A span of C or of Rust with work around it: which of these a program has is not known.
fn of_any_language(rust: Estimate) -> Estimate {
    Estimate {
        value: rust.value * f64::midpoint(LEAST_SHARE, 1.0),
        low: rust.low * LEAST_SHARE,
        high: rust.high,
    }
}

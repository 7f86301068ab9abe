//! Which hardware counters are on, in the recording.

use std::time::Instant;

use super::Recorder;

const EPERM: i32 = 1;
const EACCES: i32 = 13;

impl Recorder {
    /// The first turn; says so if nothing can be counted.
    pub(super) fn begin_counting(&mut self) {
        let counting = &mut self.pipeline.counting;
        let why = counting.rung().why;
        if !why.is_empty() {
            self.notices
                .say(format!("hardware counters are null in the ledger: {why}"));
        }
        if let (Some(sdk), Some((group, events))) =
            (&mut self.sdk, counting.switch_group(Instant::now(), true))
        {
            sdk.count(group, events);
        }
    }

    /// The next turn, if it is time.
    pub(super) fn switch_counters(&mut self) {
        if let (Some(sdk), Some((group, events))) = (
            &mut self.sdk,
            self.pipeline.counting.switch_group(Instant::now(), false),
        ) {
            sdk.count(group, events);
        }
    }

    /// Tells of processes that can't count.
    pub(super) fn report_refusals(&mut self) {
        let refusals = self.sdk.iter_mut().flat_map(|sdk| sdk.refusals());
        for (pid, why) in refusals.collect::<Vec<_>>() {
            let remedy = match why.raw_os_error() {
                Some(EACCES | EPERM) => "; to allow it: sysctl kernel.perf_event_paranoid=2",
                _ => "",
            };
            self.notices.say(format!(
                "threads of process {pid} can't open counters, which are null in the ledger: {why}{remedy}"
            ));
        }
    }
}

//! A recorder of SDK spans that keeps nothing: it has the SDK meter spans, and counts them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use tailscope_record::{CodeFor, Naming, Options, Policy, Process, Recorder, SpanSource};

/// A recorder in a thread of its own, since it gives up what its thread may do.
pub struct SdkRecorder {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    rows: AtomicU64,
    stop: AtomicBool,
}

impl SdkRecorder {
    /// Records these processes from now on. `sample`: the share of the spans that is metered.
    ///
    /// # Errors
    /// Why it can't, in words.
    pub fn start(pids: &[u32], sample: f64) -> Result<Self, String> {
        let shared = Arc::new(Shared::default());
        let (say, hear) = mpsc::channel();
        let (its, pids) = (Arc::clone(&shared), pids.to_vec());
        let body = move || match begin(&pids, sample) {
            Ok(recorder) => {
                let _ = say.send(Ok(()));
                go_on(recorder, &its);
            }
            Err(why) => {
                let _ = say.send(Err(why));
            }
        };
        let thread = thread::Builder::new()
            .spawn(body)
            .map_err(|e| format!("can't start a thread: {e}"))?;
        let recorder = Self {
            shared,
            thread: Some(thread),
        };
        hear.recv()
            .unwrap_or_else(|_| Err("the recorder failed".into()))?;
        Ok(recorder)
    }

    /// Spans that were metered so far.
    pub fn rows(&self) -> u64 {
        self.shared.rows.load(Relaxed)
    }
}

impl Drop for SdkRecorder {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn begin(pids: &[u32], sample: f64) -> Result<Recorder, String> {
    let options = Options {
        spans: vec![SpanSource::Sdk],
        sample,
        keep: Policy::ALL,
        naming: Naming::default(),
        tls: false,
        traces: false,
        counters: Vec::new(),
        stacks: None,
        code_for: CodeFor::Ledger,
        children: true,
        tell_programs: false,
        takes_over: None,
        pauses: false,
        ends_command: false,
        ledger: None,
        command: Vec::new(),
    };
    let failed = |e: tailscope_record::RecordError| e.to_string();
    let mut recorder = Recorder::start(&options, Vec::new()).map_err(failed)?;
    for pid in pids {
        recorder.watch(&Process { pid: *pid }).map_err(failed)?;
    }
    Ok(recorder)
}

fn go_on(mut recorder: Recorder, shared: &Shared) {
    while !shared.stop.load(Relaxed) {
        if recorder.round(None).is_err() {
            return; // its rows stand still
        }
        shared.rows.store(recorder.rows(), Relaxed);
    }
}

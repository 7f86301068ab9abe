//! The thread that writes windows, so that whoever follows the rings never waits for the disk.

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;

use tailscope_kernel::Mechanisms;
use tailscope_output::Folder;
use tailscope_signals::clock::unix_at_0;
use tailscope_signals::event::abi;
use tailscope_signals::event_ring::EventRings;

use super::functions::FunctionNames;
use super::{Notice, Options, machine};
use crate::about::{About, Gap, Reason};
use crate::perfetto;
use crate::request::Request;
use crate::trace::Trace;
use crate::window;

/// A window that is wanted.
pub(super) struct Job {
    /// By which its notices are known.
    pub(super) number: u64,
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    pub(super) reason: Reason,
    pub(super) slow_ns: Option<u64>,
    /// The request that it is written for.
    pub(super) slow_request: Option<Request>,
    /// As [`About::told_until_ns`].
    pub(super) told_until_ns: u64,
    pub(super) watched: Vec<u32>,
    pub(super) gaps: Vec<Gap>,
    pub(super) sdk_gaps: Vec<Gap>,
    /// The names of spans, by their numbers.
    pub(super) spans: Vec<String>,
    pub(super) processes_lost: u64,
    /// As [`About::sdk_clock_off_ns`].
    pub(super) sdk_clock_off_ns: Option<u64>,
}

pub(super) struct Writer {
    jobs: SyncSender<Job>,
    told: Receiver<(u64, Notice)>,
    thread: JoinHandle<()>,
}

impl Writer {
    pub(super) fn begin(
        rings: Arc<EventRings>,
        own: Option<Arc<EventRings>>,
        folder: Folder,
        options: &Options,
        mechanisms: &Mechanisms,
    ) -> io::Result<Self> {
        let (jobs, wanted) = sync_channel(0);
        let (tell, told) = channel();
        let mechanisms = mechanisms
            .iter()
            .map(|(of, mechanism)| {
                let hook = mechanism.hook.map(str::to_owned);
                (of.name().to_owned(), (hook, mechanism.why.clone()))
            })
            .collect();
        let mut scribe = Scribe {
            rings,
            own,
            folder,
            disk: options.disk,
            perfetto: options.perfetto,
            sockets: options.sockets,
            arguments: options.arguments.clone(),
            mechanisms,
            functions: FunctionNames::default(),
            used: 0,
            number: 0,
            full: false,
            tell,
        };
        let thread = std::thread::Builder::new()
            .name("windows".into())
            .spawn(move || scribe.run(&wanted))?;
        Ok(Self { jobs, told, thread })
    }

    /// Gives it a window to write; false while it writes another.
    pub(super) fn give(&self, job: Job) -> bool {
        match self.jobs.try_send(job) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }

    /// What there is to tell, with the number of the window that it is about.
    pub(super) fn notices(&self) -> Vec<(u64, Notice)> {
        self.told.try_iter().collect()
    }

    /// Has the last window written if it was the only one, and ends.
    pub(super) fn finish(self, last: Job) -> Vec<(u64, Notice)> {
        let Self { jobs, told, thread } = self;
        let _ = jobs.send(last);
        drop(jobs);
        let _ = thread.join();
        told.try_iter().collect()
    }
}

struct Scribe {
    rings: Arc<EventRings>,
    /// With the spans of the SDK.
    own: Option<Arc<EventRings>>,
    folder: Folder,
    disk: u64,
    perfetto: bool,
    sockets: bool,
    arguments: Vec<String>,
    mechanisms: std::collections::BTreeMap<String, (Option<String>, String)>,
    functions: FunctionNames,
    used: u64,
    number: u32,
    full: bool,
    tell: Sender<(u64, Notice)>,
}

impl Scribe {
    fn run(&mut self, wanted: &Receiver<Job>) {
        for job in wanted {
            // The end is worth a window only where there is no other.
            if job.reason == Reason::End && self.number > 0 {
                continue;
            }
            if self.used >= self.disk {
                // Slow requests go on; whoever asks is told each time.
                if !self.full || job.reason == Reason::Asked {
                    self.full = true;
                    let why = format!(
                        "the windows take {} MB, the limit of --disk; no more are written",
                        self.used / 1_000_000
                    );
                    let _ = self.tell.send((job.number, Notice::Failed { why }));
                }
                continue;
            }
            let number = job.number;
            let notice = self.write(job).unwrap_or_else(|e| Notice::Failed {
                why: format!(
                    "can't write a window to {}: {e}",
                    self.folder.path().display()
                ),
            });
            let _ = self.tell.send((number, notice));
        }
    }

    fn write(&mut self, job: Job) -> io::Result<Notice> {
        let begin = Instant::now();
        let name = self.free_name(job.reason)?;
        let path = self.folder.path().join(&name);
        let (mechanisms, reason) = (self.mechanisms.clone(), job.reason);
        let (sockets, arguments) = (self.sockets, self.arguments.clone());
        let functions = &mut self.functions;
        let about = window::write(
            (&self.rings, self.own.as_deref()),
            job.from_ns,
            job.to_ns,
            (&self.folder, &name),
            |parts, sdk, seen| {
                let (named, processes) = machine::names(&seen.threads);
                let functions = functions.nicely(&seen.ran(), &job.watched);
                About {
                    abi: abi::TL_ABI,
                    tailscope: env!("CARGO_PKG_VERSION").into(),
                    host: machine::host(),
                    arguments,
                    kernel: machine::release(),
                    arch: std::env::consts::ARCH.into(),
                    reason,
                    from_ns: job.from_ns,
                    to_ns: job.to_ns,
                    unix_offset_ns: unix_at_0(),
                    slow_ns: job.slow_ns,
                    slow_request: job.slow_request,
                    told_until_ns: job.told_until_ns,
                    parts,
                    sdk,
                    sdk_clock_off_ns: job.sdk_clock_off_ns,
                    threads: named,
                    processes,
                    functions,
                    started: machine::started(&job.watched),
                    watched: job.watched,
                    spans: job.spans,
                    sockets,
                    interrupts: machine::interrupts(),
                    gaps: job.gaps,
                    sdk_gaps: job.sdk_gaps,
                    processes_lost: job.processes_lost,
                    mechanisms,
                }
            },
        )?;
        let took_ns = begin.elapsed().as_nanos() as u64;
        self.used += self.length_of(&name)?;
        if self.perfetto {
            draw(&self.folder, &name)?;
            self.used += self.length_of(&drawn_name(&name))?;
        }
        let gaps = about.gaps.iter().chain(&about.sdk_gaps);
        let missed: u64 = gaps.map(|gap| gap.events).sum();
        let unwritten: u64 = about.all_parts().map(|part| part.unwritten).sum();
        Ok(Notice::Written {
            path,
            reason,
            held_ns: about.to_ns - about.whole_from_ns().min(about.to_ns),
            events: about.all_parts().map(|part| part.events).sum(),
            lost: missed + unwritten,
            took_ns,
        })
    }

    fn length_of(&self, name: &str) -> io::Result<u64> {
        Ok(fs::metadata(self.folder.held_path().join(name))?.len())
    }

    /// The next name that no file has.
    fn free_name(&mut self, reason: Reason) -> io::Result<String> {
        let word = match reason {
            Reason::Slow => "slow",
            Reason::Asked => "asked",
            Reason::End => "end",
        };
        for _ in 0..100_000 {
            self.number += 1;
            let name = format!("{word}-{:04}.timeline", self.number);
            if fs::symlink_metadata(self.folder.held_path().join(&name)).is_err() {
                return Ok(name);
            }
        }
        Err(io::Error::other("the folder has too many windows"))
    }
}

/// The name of the picture of a window.
fn drawn_name(name: &str) -> String {
    format!("{}.perfetto-trace", name.trim_end_matches(".timeline"))
}

fn draw(folder: &Folder, name: &str) -> io::Result<()> {
    let trace = Trace::open(&folder.held_path().join(name)).map_err(io::Error::other)?;
    let drawn = drawn_name(name);
    let unsealed = format!("{drawn}.tmp");
    let done = folder.create(&unsealed).and_then(|file| {
        let mut file = io::BufWriter::with_capacity(1 << 20, file);
        perfetto::write(&trace, &mut file)?;
        file.into_inner().map_err(io::IntoInnerError::into_error)?;
        folder.rename(&unsealed, &drawn)
    });
    if done.is_err() {
        let _ = folder.remove(&unsealed);
    }
    done
}

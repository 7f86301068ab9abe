//! Stacks of threads, joined with the spans that were open on them.
//!
//! The kernel's programs sample stacks without knowing the span: that is known when it ends. So
//! samples wait here, by thread, until a row says which thread worked for it from when to when. Both
//! have the kernel's clock, so the join is exact. What no row asks for is forgotten.
//!
//! Callers are found at once, while the process runs. Names are found when the recording ends,
//! in the very files that were mapped. Code made at run time has its names in the process's perf map.
//! Functions of Python have theirs in the process's memory: they are read at once. A screen has no ledger:
//! names are found as they are shown (`hot`).

mod blamed;
mod builds;
mod frames;
mod hot;
mod made;
mod names;
mod processes;
mod python;
mod reader;
mod renewal;
pub(crate) mod symbolize;
mod tables;

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use tailscope_kernel::StackSample;
use tailscope_symbols::kallsyms::Kallsyms;
use tailscope_trace::{Cause, LedgerWriter, Result};

use crate::interpreters::Layout;
use crate::live::Live;
use crate::options::CodeFor;
use frames::{Frame, Stack, Stacks};
use hot::Hot;
use processes::Processes;
use python::Python;
use tables::Samples;

/// Samples that wait for the end of their span, at most.
const MOST_WAITING: usize = 1 << 18;
/// A sample waits so long at most: no longer span has all of its samples.
const WAITS_NS: u64 = 60_000_000_000;

/// How long a service looks for the names of a ledger: its next ledger may have to wait for that.
const PATIENCE: Duration = Duration::from_secs(5);

/// How the kernel's functions between a tracepoint and its program are called.
const OWN: &[&str] = &["bpf_", "__bpf_", "__traceiter_"];

/// A time that a thread spent on a request, by the kernel's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) tid: u32,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// A row that was written, as its samples repeat it.
#[derive(Debug, Clone)]
pub(crate) struct About {
    /// Which row of the recording.
    pub(crate) row: u64,
    pub(crate) span: std::sync::Arc<str>,
    pub(crate) pid: i32,
    /// Whose process it is.
    pub(crate) user: u32,
    pub(crate) start_ns: i64,
    pub(crate) wall_ns: i64,
    pub(crate) weight: f64,
    /// What has to be added to a moment of the kernel's clock for Unix time.
    pub(crate) to_unix: i64,
}

/// A sample that waits for the end of its span.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    at: u64,
    ns: u64,
    cause: Option<Cause>,
    stack: Stack,
}

/// All stacks of a recording.
#[derive(Debug)]
pub(crate) struct StackPipeline {
    threads: HashMap<u32, VecDeque<Waiting>>,
    waiting: usize,
    /// Rows whose samples may not have been taken from the kernel yet.
    ended: Vec<(About, Vec<Part>)>,
    stacks: Stacks,
    processes: Processes,
    python: Python,
    kernel: Arc<Kallsyms>,
    samples: Samples,
    code_for: CodeFor,
    /// What is shown of them, where there is no ledger.
    hot: Option<Hot>,
    /// Samples that found no room.
    pub(crate) lost: u64,
}

impl StackPipeline {
    /// To be made while this process still may read where the kernel's functions are.
    pub(crate) fn start(code_for: CodeFor) -> Self {
        let kernel = File::open("/proc/kallsyms").map(Kallsyms::read);
        Self {
            threads: HashMap::new(),
            waiting: 0,
            ended: Vec::new(),
            stacks: Stacks::with_room(code_for.stacks()),
            processes: Processes::with_tables(code_for.tables()),
            python: Python::default(),
            kernel: Arc::new(kernel.unwrap_or_default()),
            samples: Samples::default(),
            hot: (code_for == CodeFor::Screen).then(Hot::default),
            code_for,
            lost: 0,
        }
    }

    /// Takes a sample.
    pub(crate) fn take(&mut self, sample: &StackSample) {
        let (native, whole) = self.processes.callers(sample);
        let (user, whole) = self.python.add_to(native, whole, sample);
        let of_kernel = self.without_own(sample);
        let of_kernel = of_kernel.iter().map(|address| Frame::Kernel(*address));
        let frames: Vec<Frame> = of_kernel.chain(user).collect();
        let interned = match self.stacks.intern(&frames, whole) {
            None if self.start_anew() => self.stacks.intern(&frames, whole),
            interned => interned,
        };
        let Some(stack) = interned else {
            self.lost += 1;
            return;
        };
        if self.waiting >= MOST_WAITING {
            self.lost += 1;
            return;
        }
        let metered = |cause: u8| Cause::METERED.get(usize::from(cause)).copied();
        let cause = match sample.cause {
            Some(cause) => metered(cause),
            None => self.cause_on_cpu(&sample.kernel),
        };
        let thread = self.threads.entry(sample.tid).or_default();
        let place = thread.partition_point(|other| other.at <= sample.at);
        let (at, ns) = (sample.at, sample.ns);
        let waiting = Waiting {
            at,
            ns,
            cause,
            stack,
        };
        thread.insert(place, waiting);
        self.waiting += 1;
    }

    /// There is no room for another stack. A screen shows the last seconds: all older ones can go.
    fn start_anew(&mut self) -> bool {
        let Some(hot) = &mut self.hot else {
            return false;
        };
        self.lost += hot.forget_stacks() as u64 + self.waiting as u64;
        self.stacks = Stacks::with_room(self.code_for.stacks());
        self.threads.clear();
        self.waiting = 0;
        true
    }

    /// The kernel's frames without those of the program that took the sample where a thread blocks.
    fn without_own<'s>(&self, sample: &'s StackSample) -> &'s [u64] {
        let is_own = |address: &u64| {
            let name = self.kernel.find(*address).unwrap_or_default();
            OWN.iter().any(|own| name.starts_with(own))
        };
        let own = match sample.cause {
            Some(_) => sample
                .kernel
                .iter()
                .take_while(|address| is_own(address))
                .count(),
            None => 0,
        };
        &sample.kernel[own..]
    }

    /// What had the CPU: a page fault or a softirq on top of the thread, by the kernel's functions;
    /// `None`: the thread itself, in a system call or not.
    fn cause_on_cpu(&self, kernel: &[u64]) -> Option<Cause> {
        let mut cause = None;
        for address in kernel {
            match self.kernel.find(*address)? {
                "net_rx_action" | "net_tx_action" => return Some(Cause::SoftirqNet),
                "run_timer_softirq" | "hrtimer_run_softirq" => return Some(Cause::SoftirqTimer),
                "handle_softirqs" | "__do_softirq" => return Some(Cause::SoftirqOther),
                "exc_page_fault" | "asm_exc_page_fault" | "do_page_fault" | "do_mem_abort" => {
                    cause = Some(Cause::Fault);
                }
                _ => {}
            }
        }
        cause
    }

    /// A row was written of a span for which these threads worked.
    pub(crate) fn end(&mut self, about: About, parts: Vec<Part>) {
        self.ended.push((about, parts));
    }

    /// Joins the rows that ended with their samples. To be called after all samples were taken
    /// that the kernel had when the rows ended.
    pub(crate) fn join(&mut self, ledger: Option<&LedgerWriter>, now: u64) -> Result<()> {
        let mut outcome = Ok(());
        for (about, parts) in std::mem::take(&mut self.ended) {
            for part in parts {
                let Some(thread) = self.threads.get(&part.tid) else {
                    continue;
                };
                let first = thread.partition_point(|sample| sample.at < part.from);
                let within = thread.iter().skip(first);
                for sample in within.take_while(|sample| sample.at <= part.to) {
                    if let Some(hot) = &mut self.hot {
                        hot.add(&about, sample, now);
                    }
                    let Some(ledger) = ledger else { continue };
                    self.stacks.is_used(sample.stack);
                    let written = self.samples.push(ledger, &about, part.tid, sample);
                    outcome = outcome.and(written);
                }
            }
        }
        self.forget(now.saturating_sub(WAITS_NS));
        outcome
    }

    /// Shows in which functions slow spans were. `since`: of rows that were written since then.
    pub(crate) fn show(&mut self, live: &mut Live, since: u64, now: u64) {
        let Some(mut hot) = self.hot.take() else {
            return;
        };
        let sums = hot.sums(live, since);
        let reads_maps = hot.reads_maps(now);
        let unnamed = hot.unnamed(&sums, reads_maps);
        if !unnamed.is_empty() {
            let frames = unnamed.iter().flat_map(|stack| self.stacks.of(*stack).0);
            let made = frames.filter_map(|frame| self.stacks.made_at(*frame));
            let made = match reads_maps {
                true => self.processes.made().names(made),
                false => made::Names::new(),
            };
            let modules = self.processes.modules();
            let known = std::mem::take(&mut hot.functions);
            let namer = names::Namer::new(&self.kernel, modules, made, &self.python);
            let mut namer = namer.at_once(known);
            for stack in unnamed {
                let (frames, whole) = self.stacks.of(stack);
                let frames = frames.iter().map(|frame| self.stacks.frame(*frame));
                hot.name(stack, frames, whole, &mut namer);
            }
            hot.functions = namer.into_functions();
        }
        hot.show(sums, live);
        self.hot = Some(hot);
    }

    fn forget(&mut self, before: u64) {
        let waiting = &mut self.waiting;
        let half_full = *waiting > MOST_WAITING / 2;
        self.threads.retain(|_, thread| {
            // A thread that is sampled all the time has the most to give.
            let surplus = if half_full { thread.len() / 2 } else { 0 };
            let old = thread
                .partition_point(|sample| sample.at < before)
                .max(surplus);
            thread.drain(..old);
            *waiting -= old;
            !thread.is_empty()
        });
    }

    /// The process runs another program since a moment of the kernel's clock, or is gone.
    pub(crate) fn forget_process(&mut self, pid: u32, since: u64) {
        self.processes.forget(pid, since);
        self.python.forget(pid);
    }

    /// A process is a copy of another one, its parent, and keeps its functions of Python where that does.
    pub(crate) fn inherit_python(&mut self, pid: u32, parent: u32) {
        self.python.inherit(pid, parent);
    }

    /// Where a process keeps its functions of Python.
    pub(crate) fn learn_python(&mut self, pid: u32, layout: Layout) {
        self.python.learn(pid, layout);
    }

    /// Finds the names, and writes what is left.
    pub(crate) fn finish(mut self, ledger: &LedgerWriter) -> Result<()> {
        let made = self.processes.made().names(self.stacks.made());
        let names = names::Namer::new(&self.kernel, self.processes.modules(), made, &self.python);
        let names = match self.code_for {
            CodeFor::Ledgers => names.at_once(HashMap::new()).within(PATIENCE),
            CodeFor::Ledger | CodeFor::Screen => names,
        };
        let written = tables::write_stacks(ledger, &self.stacks, names);
        self.samples.finish().and(written)
    }
}

//! The kinds to be timed, each with what switches its hook on and off.

use tailscope_counters::{Drained, SampledEvent, Sampling, Whose};
use tailscope_kernel::cost::{Attached, Hooks};

use super::work::{Work, spin, timed};

/// ns between two samples of a phase: below the kernel's limit for one tick.
pub const SAMPLE_PERIOD_NS: u64 = 40_000;

/// Puts a program on a hook.
type Attach = dyn Fn(&mut Hooks) -> Result<Attached, String>;

/// How a kind's hook is switched.
pub enum Switch {
    /// It is always there: on a function of its own, beside one without.
    Beside { bare: Work, _links: Vec<Attached> },
    /// It is attached for each phase.
    Attach(Box<Attach>),
    /// An event that is enabled for each phase, and samples of it are counted.
    Sampled(SampledEvent),
    /// The same, with a program that gets the samples.
    SampledByProgram {
        event: SampledEvent,
        _link: Attached,
    },
    /// Events that are opened for each phase, for these threads.
    Open(Vec<Sampling>, Vec<u32>),
}

/// One kind that is timed.
pub struct Subject {
    /// The kind's name.
    pub kind: &'static str,
    /// Which of the loaded programs it uses.
    pub hooks: usize,
    switch: Switch,
    work: Work,
    /// Hits in a phase; of sampled kinds, iterations of the reference loop.
    times: u64,
    /// What is on the hook, from one phase with it to the next one.
    attached: Option<Attached>,
    opened: Vec<SampledEvent>,
    /// Samples lost and throttled, over all phases.
    pub trouble: Drained,
    /// Hits of each turn's phases with the hook.
    pub hits: u64,
}

/// ns of one phase and its hits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Phase {
    pub ns: f64,
    pub hits: u64,
}

/// A long phase is so many batches, and the median one counts: an interrupt in some of them changes
/// nothing.
const BATCHES: u64 = 20;
/// Hits before a phase is timed: the first ones fill caches and patch code.
const WARM_UP: u64 = 24;
const SWITCH_WARM_UP: u64 = 8;

impl Subject {
    pub fn new(kind: &'static str, switch: Switch, work: Work, times: u64) -> Self {
        Self {
            kind,
            hooks: 0,
            switch,
            work,
            times,
            attached: None,
            opened: Vec::new(),
            trouble: Drained::default(),
            hits: 0,
        }
    }

    /// Whether switching its hook takes milliseconds.
    pub fn is_slow(&self) -> bool {
        matches!(self.switch, Switch::Attach(_) | Switch::Open(..))
    }

    /// Whether no other thread should have the CPU during its phases. Slow ones attach meanwhile, which
    /// waits, and the median of their batches leaves disturbed ones out.
    pub fn is_alone(&self) -> bool {
        !self.is_slow()
    }

    /// Runs one phase. `hooks`: the programs that may be attached.
    pub fn phase(&mut self, on: bool, hooks: &mut [Hooks]) -> Result<Phase, String> {
        let (work, times) = (&self.work, self.times);
        let warm = match work {
            Work::Switches(_) => SWITCH_WARM_UP,
            _ => WARM_UP,
        };
        let batches = if self.is_slow() { BATCHES } else { 1 };
        let run = |work: &Work| {
            work.run(warm);
            let batch = |_| timed(|| work.run(times / batches));
            let mut ns: Vec<f64> = (0..batches).map(batch).collect();
            ns.sort_by(f64::total_cmp);
            ns[ns.len() / 2] * batches as f64
        };
        let ns = match &self.switch {
            Switch::Beside { bare, .. } => run(if on { work } else { bare }),
            Switch::Attach(attach) => {
                if on && self.attached.is_none() {
                    self.attached = Some(attach(&mut hooks[self.hooks])?);
                } else if !on {
                    self.attached = None;
                }
                run(work)
            }
            Switch::Open(samplings, tids) => {
                if on && self.opened.is_empty() {
                    self.opened = open_all(samplings, tids)?;
                } else if !on {
                    self.opened.clear();
                }
                let ns = run(work);
                let drained = self.opened.iter().map(SampledEvent::drain);
                self.trouble = drained.fold(self.trouble, Drained::and);
                ns
            }
            Switch::Sampled(_) | Switch::SampledByProgram { .. } => return self.sampled(on),
        };
        if self.kind.ends_with("ring") {
            hooks[self.hooks].drain();
        }
        self.hits += if on { times } else { 0 };
        Ok(Phase { ns, hits: times })
    }

    fn sampled(&mut self, on: bool) -> Result<Phase, String> {
        let (Switch::Sampled(event) | Switch::SampledByProgram { event, .. }) = &self.switch else {
            return Err("it is not sampled".into());
        };
        let failed = |e: std::io::Error| e.to_string();
        let before = event.count().map_err(failed)?;
        if on {
            event.enable().map_err(failed)?;
        }
        let ns = timed(|| spin(self.times));
        if on {
            event.disable().map_err(failed)?;
        }
        let mut drained = event.drain();
        if matches!(self.switch, Switch::SampledByProgram { .. }) {
            // The program takes them, and none goes into the ring.
            let counted = event.count().map_err(failed)? - before;
            drained.samples = counted / SAMPLE_PERIOD_NS;
        }
        self.trouble = self.trouble.and(drained);
        self.hits += drained.samples;
        Ok(Phase {
            ns,
            hits: drained.samples,
        })
    }
}

pub fn open_all(samplings: &[Sampling], tids: &[u32]) -> Result<Vec<SampledEvent>, String> {
    let mut events = Vec::new();
    for tid in tids {
        for sampling in samplings {
            let event = SampledEvent::open(*sampling, Whose::Thread(*tid));
            let event = event.map_err(|e| e.to_string())?;
            event.enable().map_err(|e| e.to_string())?;
            events.push(event);
        }
    }
    Ok(events)
}

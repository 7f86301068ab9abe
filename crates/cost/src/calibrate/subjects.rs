//! Which kinds this machine has, each ready to be timed.

use std::path::Path;

use tailscope_counters::{SampledEvent, Sampling, Whose};
use tailscope_kernel::cost::{Attached, Call, First, Hooks, Payload, tracepoint_id};

use super::subject::{SAMPLE_PERIOD_NS, Subject, Switch, open_all};
use super::work::{Partner, Work, loop_ns, own_tid};

/// All kinds of this machine, and why it has not the others.
pub struct Subjects {
    pub there: Vec<Subject>,
    pub absent: Vec<(&'static str, String)>,
}

/// Cycles of the hardware between two samples of a phase.
const SAMPLE_PERIOD_CYCLES: u64 = 150_000;
/// Bytes of the stack that a sample of `locality` has without a phase.
const STACK_BYTES: u32 = 4096;
/// How long a phase of samples is.
const SAMPLED_NS: f64 = 0.8e6;
/// Hits in a phase of some 0.3 ms, of hooks that are switched at no cost.
const CALLS: u64 = 400;
/// The same where the kernel steps through the instruction.
const STEPS: u64 = 30;
/// Hits in a phase of some 2 ms: attaching takes ten times as long, so it is made good use of.
const NAMINGS: u64 = 8_000;
const SYSCALLS: u64 = 16_000;
const SWITCHES: u64 = 1_200;
/// No more samples than a ring takes.
const SAMPLED_NAMINGS: u64 = 1_800;
const SAMPLED_SYSCALLS: u64 = 800;

impl Subjects {
    /// Finds out which kinds there are. `hooks[0]` is loaded; those on the kernel's functions follow.
    pub fn find(hooks: &mut Vec<Hooks>) -> Self {
        let mut found = Self {
            there: Vec::new(),
            absent: Vec::new(),
        };
        found.samples(&mut hooks[0]);
        found.tracepoints(&mut hooks[0]);
        found.probes(&mut hooks[0]);
        found.functions(hooks);
        found.syscalls(&mut hooks[0]);
        found.switches(&mut hooks[0]);
        found
    }

    fn add(&mut self, kind: &'static str, subject: Result<Subject, String>) {
        match subject {
            Ok(subject) => self.there.push(subject),
            Err(why) => self.absent.push((kind, why)),
        }
    }

    /// A kind that is attached for each phase, tried once.
    fn attached(
        &mut self,
        kind: &'static str,
        (work, times): (Work, u64),
        hooks: &mut Hooks,
        attach: impl Fn(&mut Hooks) -> Result<Attached, String> + 'static,
    ) {
        let tried = attach(hooks).map(drop);
        let switch = Switch::Attach(Box::new(attach));
        let subject = tried.map(|()| Subject::new(kind, switch, work, times));
        self.add(kind, subject);
    }

    fn samples(&mut self, hooks: &mut Hooks) {
        let spins = (SAMPLED_NS / loop_ns()) as u64;
        let clock = Sampling::cpu_clock(SAMPLE_PERIOD_NS);
        let cycles = Sampling::cycles(SAMPLE_PERIOD_CYCLES);
        let with_chain = Sampling {
            chain: true,
            ..clock
        };
        let with_stack = Sampling {
            stack: STACK_BYTES,
            ..clock
        };
        let precise = Sampling {
            precise: 2,
            ..cycles
        };
        for (kind, sampling) in [
            ("sample.cpu-clock", clock),
            ("sample.cpu-clock.chain", with_chain),
            ("sample.cpu-clock.stack", with_stack),
            ("sample.cycles", cycles),
            ("sample.precise", precise),
        ] {
            let event = SampledEvent::open(sampling, Whose::Thread(0)).map_err(no_event);
            let switch = event.map(Switch::Sampled);
            let subject = switch.map(|switch| Subject::new(kind, switch, Work::Syscall, spins));
            self.add(kind, subject);
        }
        let kind = "sample.cpu-clock.bpf";
        let mut by_program = || {
            let event = SampledEvent::open(clock, Whose::Thread(0)).map_err(no_event)?;
            let link = hooks.samples(&event, Payload::Map)?;
            let switch = Switch::SampledByProgram { event, _link: link };
            Ok(Subject::new(kind, switch, Work::Syscall, spins))
        };
        let subject = by_program();
        self.add(kind, subject);
    }

    fn tracepoints(&mut self, hooks: &mut Hooks) {
        let naming = || (Work::Naming, NAMINGS);
        self.attached("rawtracepoint", naming(), hooks, |hooks| {
            hooks.raw_tracepoint("task_rename", Payload::Empty)
        });
        self.attached("tracepoint", naming(), hooks, |hooks| {
            hooks.tracepoint("task", "task_rename", Payload::Empty)
        });
        for (kind, sampled) in [
            ("tracepoint.perf.count", false),
            ("tracepoint.perf.sample", true),
        ] {
            let events = [("task", "task_rename")];
            let subject = by_perf(kind, &events, sampled, (Work::Naming, SAMPLED_NAMINGS));
            self.add(kind, subject);
        }
    }

    fn probes(&mut self, hooks: &mut Hooks) {
        use First::{Emulated, Nop, Nop5, Stepped};
        use Payload::{Empty, Map, Ring};
        for (kind, first, slot, returns, payload, times) in [
            ("uprobe", Emulated, 1, false, Empty, CALLS),
            ("uprobe.stepped", Stepped, 1, false, Empty, STEPS),
            ("uretprobe", Emulated, 4, true, Empty, CALLS),
            ("usdt", Nop, 1, false, Empty, CALLS),
            ("usdt.nop5", Nop5, 1, false, Empty, CALLS),
            ("payload.map", Nop, 2, false, Map, CALLS),
            ("payload.ring", Nop, 3, false, Ring, CALLS),
        ] {
            let subject = probed(hooks, kind, first, slot, returns, payload, times);
            self.add(kind, subject);
        }
    }

    fn functions(&mut self, hooks: &mut Vec<Hooks>) {
        for way in ["fentry", "kprobe"] {
            match Hooks::load_on_function(way) {
                Err(why) => self.absent.push((way, why)),
                Ok(mut own) => {
                    self.attached(way, (Work::Naming, NAMINGS), &mut own, move |hooks| {
                        hooks.function(way, Payload::Empty)
                    });
                    if let Some(added) = self.there.last_mut().filter(|s| s.kind == way) {
                        added.hooks = hooks.len();
                    }
                    hooks.push(own);
                }
            }
        }
    }

    fn syscalls(&mut self, hooks: &mut Hooks) {
        let calls = || (Work::Syscall, SYSCALLS);
        self.attached("syscall", calls(), hooks, |hooks| {
            hooks.raw_tracepoint("sys_enter", Payload::Empty)
        });
        for (kind, name) in [
            ("syscall.named", "sys_enter_getppid"),
            ("syscall.other", "sys_enter_getpgid"),
        ] {
            self.attached(kind, calls(), hooks, move |hooks| {
                hooks.tracepoint("syscalls", name, Payload::Empty)
            });
        }
        let kind = "syscall.perf";
        let events = [("raw_syscalls", "sys_enter"), ("raw_syscalls", "sys_exit")];
        let subject = by_perf(kind, &events, true, (Work::Syscall, SAMPLED_SYSCALLS));
        self.add(kind, subject);
    }

    fn switches(&mut self, hooks: &mut Hooks) {
        match Partner::start().map(Work::Switches) {
            Ok(work) => self.attached("switch", (work, SWITCHES), hooks, |hooks| {
                hooks.raw_tracepoint("sched_switch", Payload::Empty)
            }),
            Err(e) => self.absent.push(("switch", e.to_string())),
        }
        for (kind, sampling) in [
            ("switch.perf", Sampling::switches()),
            // So seldom that no sample falls into a phase.
            ("switch.sampled", Sampling::cpu_clock(1_000_000_000)),
        ] {
            let opened = || {
                let partner = Partner::start().map_err(|e| e.to_string())?;
                let tids = vec![own_tid(), partner.tid];
                open_all(&[sampling], &tids)?;
                let switch = Switch::Open(vec![sampling], tids);
                Ok(Subject::new(
                    kind,
                    switch,
                    Work::Switches(partner),
                    SWITCHES,
                ))
            };
            self.add(kind, opened());
        }
    }
}

/// A function with a probe, beside one without. Where the program does something, beside one with
/// an empty program: the difference is what it does.
fn probed(
    hooks: &mut Hooks,
    kind: &'static str,
    first: First,
    slot: usize,
    returns: bool,
    payload: Payload,
    times: u64,
) -> Result<Subject, String> {
    let mut attach = |slot, payload| {
        let call = Call::new(first, slot);
        let offset = call.offset().map_err(|e| e.to_string())?;
        let link = hooks.probe(Path::new("/proc/self/exe"), offset, returns, payload)?;
        Ok::<_, String>((Work::Calls(call), link))
    };
    let (work, link) = attach(slot, payload)?;
    let mut links = vec![link];
    let bare = if payload == Payload::Empty {
        Work::Calls(Call::new(first, 0))
    } else {
        let (bare, link) = attach(slot + 4, Payload::Empty)?;
        links.push(link);
        bare
    };
    let switch = Switch::Beside {
        bare,
        _links: links,
    };
    Ok(Subject::new(kind, switch, work, times))
}

/// Tracepoints as perf events of this thread.
fn by_perf(
    kind: &'static str,
    events: &[(&str, &str)],
    sampled: bool,
    (work, times): (Work, u64),
) -> Result<Subject, String> {
    let sampling = |(group, name): &(&str, &str)| {
        let id = tracepoint_id(group, name).map_err(no_tracefs)?;
        Ok(Sampling::tracepoint(id, sampled))
    };
    let samplings = events
        .iter()
        .map(sampling)
        .collect::<Result<Vec<_>, String>>()?;
    let tids = vec![own_tid()];
    open_all(&samplings, &tids)?;
    Ok(Subject::new(
        kind,
        Switch::Open(samplings, tids),
        work,
        times,
    ))
}

fn no_event(error: std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::Unsupported => {
            "this machine has no such counter, like most virtual machines".into()
        }
        _ => format!("the kernel refuses the event: {error}"),
    }
}

fn no_tracefs(error: std::io::Error) -> String {
    format!("no number of the tracepoint ({error}); mount -t tracefs none /sys/kernel/tracing")
}

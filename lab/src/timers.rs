//! `timers`: the planted cause "interrupts" (`irq`): a storm of timers on one CPU.
//!
//! Two kinds. `interrupt` is a software clock event of perf on that CPU: a high-resolution timer
//! that the kernel restarts in its own handler, so that the CPU takes nothing but interrupts.
//! Rejected for it: a timerfd re-arms only when it is read, a POSIX timer only when its signal is
//! delivered; both need a thread to run on the CPU, and the cause would be `preempted` as much as
//! `irq`. That is the other kind, `timerfd`: what a program with many short timers does.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use perf_event_open_sys as perf;
use rustix::event::Timespec;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::clock::{Nanos, parse_duration};
use crate::stop::Stop;
use crate::{Usage, cpu};

/// The kernel raises shorter periods to this one (perf_swevent_init_hrtimer).
const SHORTEST: Nanos = Nanos(10_000);

/// What the interrupts may take of a period, in percent. Beyond that, a CPU may never get to what stops
/// them, and the machine stands still for a minute. A recorder makes each a little longer.
const MOST_BUSY: u64 = 85;

/// How many interrupts are looked at before the storm.
const TRIED: usize = 20;
/// The time between two of them, at least; for many timers it is `APART_EACH` ns for each.
const APART: Nanos = Nanos(200_000);
const APART_EACH: u64 = 4_000;

/// Make one CPU take many timer interrupts.
#[derive(Args)]
#[command(after_help = "Examples:
  tailscope-lab timers --cpu 1 --period 20us
  tailscope-lab timers --cpu 1 --period 5ms --burst 200    rare, but some 100 µs in a row
  tailscope-lab timers --cpu 1 --period 10us --storm 2ms --every 20ms    a tenth of the time")]
pub struct Timers {
    /// The CPU that takes the interrupts
    #[arg(long)]
    cpu: usize,

    /// Time between two interrupts of one timer, 10 µs or more
    #[arg(long, default_value = "20us", value_parser = parse_duration)]
    period: Duration,

    /// How many timers are due each period, all at once
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    burst: u16,

    /// Fire for so long at a time, each `--every` [default: without a rest]
    #[arg(long, value_parser = parse_duration, requires = "every", conflicts_with = "kind")]
    storm: Option<Duration>,

    /// From one storm to the next
    #[arg(long, value_parser = parse_duration, requires = "storm")]
    every: Option<Duration>,

    /// What fires
    #[arg(long, value_enum, default_value_t = Kind::Interrupt)]
    kind: Kind,

    /// Stop after this time [default: at Ctrl-C]
    #[arg(short, long, value_parser = parse_duration)]
    duration: Option<Duration>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    /// Interrupts and nothing else
    Interrupt,
    /// Each timer also wakes a thread on that CPU
    Timerfd,
}

impl Timers {
    pub fn run(self) -> anyhow::Result<()> {
        let period = Nanos::from(self.period);
        if period < SHORTEST {
            return Err(Usage(format!("--period must be at least {SHORTEST}")).into());
        }
        let stop = Stop::after(self.duration)?;
        match self.kind {
            Kind::Interrupt => {
                let period = bearable(self.cpu, period, self.burst)?;
                let events = ClockEvents::open(self.cpu, period, self.burst)?;
                match self.storm.zip(self.every) {
                    Some((storm, every)) => events.storm(storm.into(), every.into(), &stop),
                    None => {
                        events.run(true)?;
                        stop.wait();
                        Ok(())
                    }
                }
            }
            Kind::Timerfd => {
                cpu::pin(self.cpu)?;
                thread::scope(|scope| {
                    let threads: Vec<_> = (0..self.burst)
                        .map(|_| scope.spawn(|| read_timer(period, &stop)))
                        .collect();
                    threads
                        .into_iter()
                        .try_for_each(|t| t.join().expect("it doesn't panic"))
                })
            }
        }
    }
}

/// This period, or a longer one if the CPU can't take that number of timers in it.
fn bearable(cpu: usize, period: Nanos, count: u16) -> anyhow::Result<Nanos> {
    let took = interrupt_length(cpu, count)?;
    let least = Nanos(took.0 * 100 / MOST_BUSY);
    if period < least {
        eprintln!("{count} timers take {took} of CPU {cpu}: they fire every {least}");
    }
    Ok(period.max(least))
}

/// How long an interrupt takes that finds this number of timers due. A loop on that CPU stands still in the
/// meantime. Other work there makes some of these gaps longer, so the median counts.
fn interrupt_length(cpu: usize, count: u16) -> anyhow::Result<Nanos> {
    let apart = APART.max(Nanos(u64::from(count) * APART_EACH));
    let events = ClockEvents::open(cpu, apart, count)?;
    let gaps = thread::scope(|scope| {
        let looking = scope.spawn(|| {
            cpu::pin(cpu)?;
            events.run(true)?;
            let longest = (0..TRIED).map(|_| longest_gap(apart)).collect();
            events.run(false).map(|()| longest)
        });
        looking.join().expect("it doesn't panic")
    });
    let mut gaps: Vec<Nanos> = gaps?;
    gaps.sort_unstable();
    Ok(gaps[TRIED / 2])
}

/// The longest time between two readings of the clock, within that time.
fn longest_gap(length: Nanos) -> Nanos {
    let begin = Nanos::now();
    let (mut last, mut longest) = (begin, Nanos(0));
    while last - begin < length {
        let now = Nanos::now();
        longest = longest.max(now - last);
        last = now;
    }
    longest
}

/// Timers of one phase: one interrupt finds them all due, and works them off one after the other.
/// They are one group, so that the kernel starts and stops them together, with its leader.
struct ClockEvents {
    leader: File,
    _others: Vec<File>,
}

impl ClockEvents {
    /// Nothing fires yet.
    fn open(cpu: usize, period: Nanos, count: u16) -> anyhow::Result<Self> {
        let leader = clock_event(cpu, period, None)?;
        let others = (1..count).map(|_| clock_event(cpu, period, Some(&leader)));
        let _others = others.collect::<anyhow::Result<_>>()?;
        Ok(Self { leader, _others })
    }

    fn run(&self, on: bool) -> anyhow::Result<()> {
        let fd = self.leader.as_raw_fd();
        // SAFETY: the requests take no pointer, and the descriptor is an open perf event.
        let failed = unsafe {
            if on {
                perf::ioctls::ENABLE(fd, 0)
            } else {
                perf::ioctls::DISABLE(fd, 0)
            }
        };
        if failed != 0 {
            return Err(io::Error::last_os_error()).context("can't start or stop the timers");
        }
        Ok(())
    }

    /// Runs them for a while at the begin of each period.
    fn storm(&self, storm: Nanos, every: Nanos, stop: &Stop) -> anyhow::Result<()> {
        let mut due = Nanos::now();
        while !stop.due() {
            self.run(true)?;
            sleep_until(due + storm);
            self.run(false)?;
            due = (due + every).max(Nanos::now());
            sleep_until(due);
        }
        Ok(())
    }
}

fn sleep_until(moment: Nanos) {
    let rest = moment - Nanos::now();
    if rest.0 > 0 {
        thread::sleep(Duration::from_nanos(rest.0));
    }
}

/// A perf event that interrupts `cpu` every `period` for as long as the file is open. Nobody asked
/// for its samples, so the kernel drops them. A leader is made stopped, and its group with it.
fn clock_event(cpu: usize, period: Nanos, leader: Option<&File>) -> anyhow::Result<File> {
    let mut attr = perf::bindings::perf_event_attr {
        type_: perf::bindings::PERF_TYPE_SOFTWARE,
        size: size_of::<perf::bindings::perf_event_attr>() as u32,
        config: u64::from(perf::bindings::PERF_COUNT_SW_CPU_CLOCK),
        ..Default::default()
    };
    attr.__bindgen_anon_1.sample_period = period.0;
    attr.set_disabled(leader.is_none().into());
    let group = leader.map_or(-1, File::as_raw_fd);
    let flags = perf::bindings::PERF_FLAG_FD_CLOEXEC.into();
    // SAFETY: attr is a whole perf_event_attr of the size that it says, and outlives the call.
    let fd = unsafe { perf::perf_event_open(&raw mut attr, -1, cpu as i32, group, flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error()).with_context(|| {
            format!("can't open a clock event on CPU {cpu}: needs that CPU, and CAP_PERFMON")
        });
    }
    // SAFETY: the kernel has just given this descriptor to us, and nobody else knows it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// A periodic timer, read each time that it fired: only reading starts it again.
fn read_timer(period: Nanos, stop: &Stop) -> anyhow::Result<()> {
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)
        .context("timerfd_create")?;
    let every = Timespec {
        tv_sec: (period.0 / 1_000_000_000) as i64,
        tv_nsec: (period.0 % 1_000_000_000) as i64,
    };
    let periodic = Itimerspec {
        it_interval: every,
        it_value: every,
    };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &periodic).context("timerfd_settime")?;
    let mut expirations = [0; 8];
    while !stop.due() {
        match rustix::io::read(&timer, &mut expirations) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("can't read a timer"),
        }
    }
    Ok(())
}

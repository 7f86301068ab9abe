//! Faults in another process's memory, planted from outside through process_madvise(2).
//!
//! `shootdowns`: the planted cause "interrupts" (`irq`). Telling the kernel that pages are cold
//! makes it forget that they were used, for which every CPU that runs the process must drop them
//! from its TLB: one interrupt each time. The pages stay where they are.
//!
//! `evict`: the planted cause "page faults" (`fault`). Pages of files that no other process has
//! mapped are taken from the process; it finds them again at its next touch. On a tmpfs without
//! swap they never leave memory, so such a fault waits for no disk: start the program from there.

use std::fs;
use std::io;
use std::os::fd::AsRawFd as _;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::clock::{Nanos, parse_duration};
use crate::cpu;
use crate::stop::Stop;

/// Anonymous mappings up to this size are those that a program uses all the time: stack, data, the
/// head of the heap. In larger ones the kernel would look through many pages for a few used ones.
const SMALL: usize = 256 << 10;

/// Make the CPUs that run a process take TLB shootdowns.
#[derive(Args)]
#[command(
    after_help = "Example: 1 ms of shootdowns, 100 times a second, sent from CPU 1
  tailscope-lab shootdowns --pid 4711 --cpu 1 --burst 1ms --period 10ms

Needs root (CAP_SYS_NICE and the right to trace the process)."
)]
pub struct Shootdowns {
    #[command(flatten)]
    of: Victim,

    /// How long to send in each period
    #[arg(long, default_value = "1ms", value_parser = parse_duration)]
    burst: Duration,
}

/// Take a process's pages of files away, again and again.
#[derive(Args)]
#[command(after_help = "Example:
  tailscope-lab evict --pid 4711 --cpu 1 --period 5ms

Needs root (CAP_SYS_NICE and the right to trace the process).")]
pub struct Evict {
    #[command(flatten)]
    of: Victim,
}

#[derive(Args)]
struct Victim {
    /// The process
    #[arg(long)]
    pid: i32,

    /// Work from this CPU
    #[arg(long)]
    cpu: Option<usize>,

    /// From one time to the next
    #[arg(long, default_value = "10ms", value_parser = parse_duration)]
    period: Duration,

    /// Stop after this time [default: when the process ends, or at Ctrl-C]
    #[arg(short, long, value_parser = parse_duration)]
    duration: Option<Duration>,
}

impl Shootdowns {
    pub fn run(self) -> anyhow::Result<()> {
        let burst = Nanos::from(self.burst);
        let mut sent = 0u64;
        self.of.torment(
            |map| map.writable && map.anonymous && map.length <= SMALL,
            |process, memory| {
                let begin = Nanos::now();
                while Nanos::now() - begin < burst {
                    process.advise(memory, libc::MADV_COLD)?;
                    sent += 1;
                }
                Ok(())
            },
        )?;
        eprintln!("pages made cold {sent} times");
        Ok(())
    }
}

impl Evict {
    pub fn run(self) -> anyhow::Result<()> {
        let mut times = 0u64;
        self.of.torment(
            |map| !map.writable && !map.anonymous,
            |process, memory| {
                times += 1;
                process.advise(memory, libc::MADV_PAGEOUT)
            },
        )?;
        eprintln!("pages taken away {times} times");
        Ok(())
    }
}

impl Victim {
    /// Does something to the chosen memory each period, for as long as the process is there.
    fn torment(
        &self,
        choose: impl Fn(&Mapping) -> bool,
        mut act: impl FnMut(&Process, &[libc::iovec]) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        cpu::pin_if_asked(self.cpu)?;
        let stop = Stop::after(self.duration)?;
        let process = Process::open(self.pid)?;
        let memory = mappings(self.pid)?;
        let memory: Vec<_> = memory.iter().filter(|map| choose(map)).collect();
        anyhow::ensure!(
            !memory.is_empty(),
            "process {} has no such memory",
            self.pid
        );
        let memory: Vec<_> = memory.into_iter().map(Mapping::iovec).collect();
        rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1))?;
        let mut due = Nanos::now();
        while !stop.due() {
            match act(&process, &memory) {
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(()),
                done => done.context("can't change the process's memory (process_madvise)")?,
            }
            due = due + Nanos::from(self.period);
            let rest = due - Nanos::now();
            if rest.0 > 0 {
                thread::sleep(Duration::from_nanos(rest.0));
            } else {
                due = Nanos::now();
            }
        }
        Ok(())
    }
}

/// A process that can't be mistaken for a later one of the same number.
struct Process(rustix::fd::OwnedFd);

impl Process {
    fn open(pid: i32) -> anyhow::Result<Self> {
        let number = Pid::from_raw(pid).context("--pid must be above 0")?;
        let fd = pidfd_open(number, PidfdFlags::empty())
            .with_context(|| format!("there is no process {pid}"))?;
        Ok(Self(fd))
    }

    /// One call may stop early, at memory that has gone meanwhile; the next goes over it again.
    fn advise(&self, memory: &[libc::iovec], advice: libc::c_int) -> io::Result<()> {
        // SAFETY: the vector has so many entries and outlives the call; the addresses in it are
        // the other process's, which the kernel checks.
        let advised = unsafe {
            libc::syscall(
                libc::SYS_process_madvise,
                self.0.as_raw_fd(),
                memory.as_ptr(),
                memory.len(),
                advice,
                0,
            )
        };
        match io::Error::last_os_error() {
            error if advised < 0 && error.raw_os_error() != Some(libc::ENOMEM) => Err(error),
            _ => Ok(()),
        }
    }
}

/// A line of /proc/PID/maps.
#[derive(Debug, PartialEq, Eq)]
struct Mapping {
    start: usize,
    length: usize,
    writable: bool,
    anonymous: bool,
}

impl Mapping {
    fn iovec(&self) -> libc::iovec {
        libc::iovec {
            iov_base: self.start as *mut libc::c_void,
            iov_len: self.length,
        }
    }

    /// `55d0-55d4 r-xp 00001000 00:19 4 /dev/shm/x`; None for what is no memory of the program.
    fn read(line: &str) -> Option<Self> {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let rights = fields.next()?;
        let name = fields.nth(3).unwrap_or("");
        let start = usize::from_str_radix(start, 16).ok()?;
        let ours = !name.starts_with("[v") && rights.starts_with('r');
        ours.then_some(Self {
            start,
            length: usize::from_str_radix(end, 16).ok()? - start,
            writable: rights.as_bytes().get(1) == Some(&b'w'),
            anonymous: !name.starts_with('/'),
        })
    }
}

fn mappings(pid: i32) -> anyhow::Result<Vec<Mapping>> {
    let text = fs::read_to_string(format!("/proc/{pid}/maps"))
        .with_context(|| format!("can't read the memory map of process {pid}"))?;
    Ok(text.lines().filter_map(Mapping::read).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_read_as_the_kernel_writes_them() {
        let text = Mapping::read("55d0000-55d4000 r-xp 00001000 00:19 4    /usr/bin/x");
        let expected = Mapping {
            start: 0x55d_0000,
            length: 0x4000,
            writable: false,
            anonymous: false,
        };
        assert_eq!(text, Some(expected));
        let heap = Mapping::read("1000-2000 rw-p 00000000 00:00 0 [heap]").expect("it is memory");
        assert!(heap.writable && heap.anonymous);
        assert_eq!(
            Mapping::read("1000-2000 r-xp 00000000 00:00 0 [vdso]"),
            None
        );
        assert_eq!(Mapping::read("1000-2000 ---p 00000000 00:00 0 "), None);
    }
}

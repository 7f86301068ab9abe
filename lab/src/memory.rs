//! Faults in another process's memory, planted from outside through process_madvise(2).
//!
//! `shootdowns`: the planted cause "interrupts" (`irq`). Telling the kernel that pages are cold
//! makes it forget that they were used, for which every CPU that runs the process must drop them
//! from its TLB: one interrupt each time. The pages stay where they are. It is done to the pages
//! around the stack pointers of the threads that work: whoever runs uses them again at once, so that
//! there always is something to forget.
//!
//! `evict`: the planted cause "page faults" (`fault`). Pages of files that no other process has
//! mapped, and of shared memory, are taken from the process; it finds them again at its next touch.
//! On a tmpfs without swap they never leave memory, so such a fault waits for no disk: start the
//! program from there.

use std::fs;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::clock::{Nanos, parse_duration};
use crate::cpu;
use crate::stop::Stop;

/// How far a blocked thread's stack pointer is from where it works when it runs, about.
const BELOW: usize = 16 << 10;
const ABOVE: usize = 8 << 10;
const PAGE: usize = 4096;

/// How long threads are watched to see which of them work.
const LOOK: Duration = Duration::from_millis(200);

/// As many pieces as a call may name (UIO_MAXIOV): it goes over the same ones again and again.
const PIECES: usize = 1024;

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

    /// How long to take them away in each period, over and over; at least once
    #[arg(long, default_value = "0s", value_parser = parse_duration)]
    burst: Duration,
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
        let stacks = stacks(self.of.pid)?;
        let times = (PIECES / stacks.len().max(1)).max(1);
        let calls = self
            .of
            .torment(self.burst, &stacks.repeat(times), libc::MADV_COLD)?;
        eprintln!("pages made cold {} times", calls * times as u64);
        Ok(())
    }
}

impl Evict {
    pub fn run(self) -> anyhow::Result<()> {
        let files: Vec<_> = mappings(self.of.pid)?
            .iter()
            .filter(|map| !map.anonymous)
            .map(Mapping::iovec)
            .collect();
        let calls = self.of.torment(self.burst, &files, libc::MADV_PAGEOUT)?;
        eprintln!("pages taken away {calls} times");
        Ok(())
    }
}

impl Victim {
    /// Gives the kernel an advice about some memory, over and over for the length of a burst each
    /// period, for as long as the process is there. Returns how many calls that was.
    fn torment(
        &self,
        burst: Duration,
        memory: &[libc::iovec],
        advice: libc::c_int,
    ) -> anyhow::Result<u64> {
        cpu::pin_if_asked(self.cpu)?;
        let stop = Stop::after(self.duration)?;
        let process = Process::open(self.pid)?;
        anyhow::ensure!(
            !memory.is_empty(),
            "process {} has no such memory",
            self.pid
        );
        let burst = Nanos::from(burst);
        let mut calls = 0;
        rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1))?;
        let mut due = Nanos::now();
        while !stop.due() {
            let begin = Nanos::now();
            loop {
                match process.advise(memory, advice) {
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(calls),
                    done => done.context("can't change the process's memory (process_madvise)")?,
                }
                calls += 1;
                if Nanos::now() - begin >= burst {
                    break;
                }
            }
            due = due + Nanos::from(self.period);
            let rest = due - Nanos::now();
            if rest.0 > 0 {
                thread::sleep(Duration::from_nanos(rest.0));
            } else {
                due = Nanos::now();
            }
        }
        Ok(calls)
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
            anonymous: !name.starts_with('/'),
        })
    }
}

/// The pages around the stack pointers of the threads of a process that work.
fn stacks(pid: i32) -> anyhow::Result<Vec<libc::iovec>> {
    let mappings = mappings(pid)?;
    let mut found = Vec::new();
    for thread in working(&threads(pid)?) {
        let Some(pointer) = stack_pointer(&thread.join("syscall")) else {
            continue;
        };
        let around = mappings
            .iter()
            .find(|map| map.start <= pointer && pointer < map.start + map.length);
        if let Some(map) = around {
            let end = (pointer / PAGE * PAGE + ABOVE).min(map.start + map.length);
            let start = (pointer / PAGE * PAGE).saturating_sub(BELOW).max(map.start);
            found.push(libc::iovec {
                iov_base: start as *mut libc::c_void,
                iov_len: end - start,
            });
        }
    }
    Ok(found)
}

/// The folders of a process's threads.
fn threads(pid: i32) -> anyhow::Result<Vec<PathBuf>> {
    fs::read_dir(format!("/proc/{pid}/task"))
        .with_context(|| format!("there is no process {pid}"))?
        .map(|thread| Ok(thread?.path()))
        .collect()
}

/// Those threads that use at least half as much CPU time as the busiest; all, if none uses any.
fn working(threads: &[PathBuf]) -> Vec<&PathBuf> {
    let before: Vec<u64> = threads.iter().map(|thread| cpu_ns(thread)).collect();
    thread::sleep(LOOK);
    let used: Vec<u64> = threads
        .iter()
        .zip(before)
        .map(|(thread, before)| cpu_ns(thread).saturating_sub(before))
        .collect();
    let most = used.iter().max().copied().unwrap_or(0);
    let all = threads.iter().zip(used);
    all.filter(|(_, used)| used * 2 >= most)
        .map(|(thread, _)| thread)
        .collect()
}

/// The CPU time of a thread by the scheduler's count; 0 for one that has gone.
fn cpu_ns(thread: &Path) -> u64 {
    fs::read_to_string(thread.join("schedstat"))
        .ok()
        .and_then(|text| text.split(' ').next()?.parse().ok())
        .unwrap_or(0)
}

/// Where a thread's stack ends, from the file that says so while the thread is blocked. None for
/// one that runs all the time, or has gone.
fn stack_pointer(file: &Path) -> Option<usize> {
    for _ in 0..1000 {
        let text = fs::read_to_string(file).ok()?;
        if let Some(pointer) = text.split_ascii_whitespace().rev().nth(1) {
            return usize::from_str_radix(pointer.strip_prefix("0x")?, 16).ok();
        }
        thread::sleep(Duration::from_millis(1));
    }
    None
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
            anonymous: false,
        };
        assert_eq!(text, Some(expected));
        let heap = Mapping::read("1000-2000 rw-p 00000000 00:00 0 [heap]").expect("it is memory");
        assert!(heap.anonymous);
        assert_eq!(
            Mapping::read("1000-2000 r-xp 00000000 00:00 0 [vdso]"),
            None
        );
        assert_eq!(Mapping::read("1000-2000 ---p 00000000 00:00 0 "), None);
    }
}

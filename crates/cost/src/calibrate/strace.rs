//! What `strace` takes at a system call: timed with the real one, on a program of our own that reads
//! and writes one byte at a time.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::Found;
use crate::statistics::{Estimate, blocked};
use crate::target::Target;

/// Turns with strace on each CPU.
const TURNS: usize = 6;
const BARE: Duration = Duration::from_millis(15);
const TRACED: Duration = Duration::from_millis(30);
/// How long strace may take to attach, or to end.
const PATIENCE: Duration = Duration::from_secs(2);

/// A process that is ended with this value.
pub struct Ended(pub Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// ns a system call of `strace -c` and of plain `strace`, by kind; or why there is none.
pub fn measure() -> Vec<(&'static str, Found)> {
    let kinds = [("strace.count", ["-c", "-q"]), ("strace", ["-q", "-q"])];
    kinds
        .into_iter()
        .map(|(kind, options)| (kind, of(&options)))
        .collect()
}

/// Where strace runs: on the CPU of the program, or on another one. Each stop wakes the other, and on
/// a virtual machine a wake-up across CPUs can take many times the rest.
fn of(options: &[&str]) -> Found {
    let program = quiet("dd")
        .args(["if=/dev/zero", "of=/dev/null", "bs=1"])
        .spawn()
        .map_err(|e| format!("can't start dd, the program that it is timed with: {e}"))?;
    let program = Ended(program);
    let pid = program.0.id();
    let allowed = sched_getaffinity(None).map_err(|e| e.to_string())?;
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU)
        .filter(|cpu| allowed.is_set(*cpu))
        .collect();
    let (here, other) = match cpus.as_slice() {
        [] => return Err("no CPU may be used".into()),
        [one] => (*one, None),
        [first, .., last] => (*first, Some(*last)),
    };
    stay(pid, here)?;
    let (mut found, mut hits) = (Vec::new(), 0);
    for cpu in [Some(here), other].into_iter().flatten() {
        let mut differences = Vec::new();
        for _ in 0..TURNS {
            let (difference, traced) = turn(options, pid, cpu)?;
            differences.push(difference);
            hits += traced;
        }
        found.push(blocked(&differences).ok_or("too few turns")?);
    }
    let values = found.iter().map(|one| one.value).sum::<f64>();
    let estimate = Estimate {
        value: values / found.len() as f64,
        low: found.iter().map(|one| one.low).fold(f64::MAX, f64::min),
        high: found.iter().map(|one| one.high).fold(0.0, f64::max),
    };
    Ok((estimate, hits))
}

fn stay(pid: u32, cpu: usize) -> Result<(), String> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(Pid::from_raw(pid.cast_signed()), &set).map_err(|e| e.to_string())
}

/// What strace on this CPU adds to a call of the program, and the calls that it saw.
fn turn(options: &[&str], pid: u32, cpu: usize) -> Result<(f64, u64), String> {
    let target = Target { pids: vec![pid] };
    let calls = || target.io().map(|(calls, _)| calls);
    calls().ok_or("this kernel does not count the calls of a process (/proc/PID/io)")?;
    let per_call = |for_so_long: Duration| -> Result<(f64, u64), String> {
        let gone = "the program that it is timed with ended";
        let (start, before) = (Instant::now(), calls().ok_or(gone)?);
        sleep(for_so_long);
        let hits = calls().ok_or(gone)? - before;
        let ns = start.elapsed().as_nanos() as f64;
        Ok((ns / hits.max(1) as f64, hits))
    };
    let (before, _) = per_call(BARE)?;
    let strace = quiet("strace")
        .args(options)
        .args(["-o", "/dev/null", "-p", &pid.to_string()])
        .spawn()
        .map_err(|e| format!("can't start strace: {e}"))?;
    let mut strace = Ended(strace);
    stay(strace.0.id(), cpu)?;
    until(|| tracer(pid) != 0, "strace did not attach")?;
    let (with, traced) = per_call(TRACED)?;
    interrupt(&mut strace.0);
    until(|| tracer(pid) == 0, "strace did not detach")?;
    drop(strace);
    let (after, _) = per_call(BARE)?;
    Ok((with - (before + after) / 2.0, traced))
}

fn quiet(program: &str) -> Command {
    let mut command = Command::new(program);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Asks a process to end, as Ctrl-C does.
pub fn interrupt(child: &mut Child) {
    // A child that was not waited for keeps its number.
    if let (Ok(None), Some(pid)) = (child.try_wait(), Pid::from_raw(child.id().cast_signed())) {
        let _ = kill_process(pid, Signal::INT);
    }
}

/// Who traces a process; 0: nobody.
pub fn tracer(pid: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("TracerPid:"));
    line.and_then(|line| line.trim().parse().ok()).unwrap_or(0)
}

fn until(mut is_so: impl FnMut() -> bool, otherwise: &str) -> Result<(), String> {
    let begin = Instant::now();
    while !is_so() {
        if begin.elapsed() > PATIENCE {
            return Err(format!("{otherwise} within {} s", PATIENCE.as_secs()));
        }
        sleep(Duration::from_millis(1));
    }
    Ok(())
}

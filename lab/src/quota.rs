//! `quota`: the planted cause "out of CPU quota" (`throttled`): a cgroup with a CPU limit, made for
//! one process and removed with it.

use std::fs;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::cgroup::Group;
use crate::clock::parse_duration;
use crate::stop::Stop;

/// How often to look whether something ended.
const GLANCE: Duration = Duration::from_millis(20);

/// How long a command may take to end when it is asked to.
const PATIENCE: Duration = Duration::from_secs(5);

/// Run a command, or keep a running process, under a CPU quota.
#[derive(Args)]
#[command(after_help = "Examples:
  tailscope-lab quota --quota-us 20000 --period-us 100000 -- memcached -u nobody -p 11300
  tailscope-lab quota --quota-us 5000 --period-us 10000 --pid 4711 --duration 30s

With --pid the processes go back to where they were at the end. Needs root.")]
pub struct Quota {
    /// CPU time that the process may use in each period, in µs
    #[arg(long, value_parser = clap::value_parser!(u64).range(1000..))]
    quota_us: u64,

    /// Length of a period, in µs
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1000..=1_000_000))]
    period_us: u64,

    /// A running process, all its threads and children
    #[arg(long, conflicts_with = "command", required_unless_present = "command")]
    pid: Option<u32>,

    /// Stop after this time [default: when the process ends, or at Ctrl-C]
    #[arg(short, long, value_parser = parse_duration)]
    duration: Option<Duration>,

    /// The command, after --
    #[arg(last = true)]
    command: Vec<String>,
}

impl Quota {
    pub fn run(self) -> anyhow::Result<()> {
        let stop = Stop::after(self.duration)?;
        let group = Group::create(self.quota_us, self.period_us)?;
        let result = match self.pid {
            Some(pid) => hold(&group, pid, &stop),
            None => run(&group, &self.command, &stop),
        };
        eprintln!("{}", group.throttling());
        result
    }
}

/// Puts a running process and its children into the group until the end, then back to their own.
/// What they start meanwhile is in the group from its birth.
fn hold(group: &Group, pid: u32, stop: &Stop) -> anyhow::Result<()> {
    let process = i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .context("no such process")?;
    let home = group.hierarchy.group_of(pid)?;
    group.hierarchy.put(pid, &group.path)?;
    let mut homes = vec![(pid, home)];
    for child in children(pid) {
        // One that has just ended needs no quota.
        if let Ok(home) = group.hierarchy.group_of(child) {
            let _ = group.hierarchy.put(child, &group.path);
            homes.push((child, home));
        }
    }
    while !stop.due() && test_kill_process(process).is_ok() {
        thread::sleep(GLANCE);
    }
    for (pid, home) in homes {
        let _ = group.hierarchy.put(pid, &home);
    }
    Ok(())
}

/// The processes that a process has started, and those that they have.
fn children(pid: u32) -> Vec<u32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|list| {
            list.split_ascii_whitespace()
                .filter_map(|child| child.parse().ok())
                .collect::<Vec<u32>>()
        })
        .flat_map(|child| [vec![child], children(child)].concat())
        .collect()
}

/// Runs a command in the group from its first instruction on.
fn run(group: &Group, command: &[String], stop: &Stop) -> anyhow::Result<()> {
    // A shell joins the group and becomes the command, so not even its start is outside.
    let mut child = Command::new("sh")
        .args(["-c", "echo $$ >\"$0\" && exec \"$@\""])
        .arg(group.path.join("cgroup.procs"))
        .args(command)
        .spawn()
        .context("can't run sh")?;
    let ended = wait(&mut child, stop);
    let status = child.wait().context("can't wait for the command")?;
    if ended && !status.success() {
        bail!("'{}' ended with {status}", command[0]);
    }
    Ok(())
}

/// Returns whether the child ended by itself; else asks it to, and insists after a while.
fn wait(child: &mut Child, stop: &Stop) -> bool {
    let over = |child: &mut Child| !matches!(child.try_wait(), Ok(None));
    while !stop.due() {
        if over(child) {
            return true;
        }
        thread::sleep(GLANCE);
    }
    // It can't be another process's number: this child has not been waited for.
    let _ = kill_process(Pid::from_child(child), Signal::TERM);
    let deadline = Instant::now() + PATIENCE;
    while !over(child) {
        if Instant::now() > deadline {
            let _ = child.kill();
            break;
        }
        thread::sleep(GLANCE);
    }
    false
}

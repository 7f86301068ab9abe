//! Each fault does what it says, where it says, and leaves nothing behind.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A fault that is under way; it is ended, in order, when dropped.
struct Fault(Child);

impl Fault {
    fn start(args: &[&str]) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_tailscope-lab"))
            .args(args)
            .args(["--duration", "20s"])
            .stderr(Stdio::null())
            .spawn()
            .expect("the lab was built");
        let fault = Self(child);
        until("the fault can be ended in order", || {
            let status = format!("/proc/{}/status", fault.0.id());
            let status = fs::read_to_string(status).expect("it runs");
            let caught = status.lines().find_map(|l| l.strip_prefix("SigCgt:"));
            let caught = caught.map(|mask| u64::from_str_radix(mask.trim(), 16));
            caught.is_some_and(|mask| mask.expect("hex") & (1 << (Signal::TERM.as_raw() - 1)) != 0)
        });
        fault
    }

    fn end(mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.0), Signal::TERM).expect("it runs");
        self.0.wait().expect("it ends").code()
    }
}

impl Drop for Fault {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for something to become true; a machine with much else to do takes its time.
fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_true() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// What a line of /proc/interrupts or /proc/softirqs counts on one CPU.
fn count(file: &str, line: &str, cpu: usize) -> u64 {
    let text = fs::read_to_string(file).expect("procfs");
    let fields = text
        .lines()
        .find_map(|l| l.trim().strip_prefix(line))
        .expect("the line");
    fields
        .split_whitespace()
        .nth(cpu)
        .and_then(|n| n.parse().ok())
        .expect("a number")
}

/// How much a count grows in a second.
fn per_second(file: &str, line: &str, cpu: usize) -> f64 {
    let (begin, before) = (Instant::now(), count(file, line, cpu));
    thread::sleep(Duration::from_secs(1));
    (count(file, line, cpu) - before) as f64 / begin.elapsed().as_secs_f64()
}

/// False, with the reason printed, where the machine can't.
fn able() -> bool {
    let reason = if !rustix::process::geteuid().is_root() {
        "needs root"
    } else if thread::available_parallelism().map_or(1, usize::from) < 2 {
        "needs two CPUs"
    } else {
        return true;
    };
    eprintln!("skipped: {reason}");
    false
}

#[test]
fn timers_interrupt_the_cpu_asked_for() {
    if !able() {
        return;
    }
    let fault = Fault::start(&["timers", "--cpu", "1", "--period", "50us"]);
    let rate = per_second("/proc/interrupts", "LOC:", 1);
    assert_eq!(fault.end(), Some(0));
    assert!(rate > 15_000.0, "{rate} of 20,000 interrupts a second");
}

#[test]
fn packets_bring_softirqs_to_the_cpu_asked_for() {
    if !able() {
        return;
    }
    let lo = "/sys/class/net/lo/queues/rx-0/rps_cpus";
    let steered = fs::read_to_string(lo).expect("sysfs");
    let fault = Fault::start(&["packets", "--cpu", "1", "--rate", "5000"]);
    let rate = per_second("/proc/softirqs", "NET_RX:", 1);
    assert_eq!(fault.end(), Some(0));
    assert!(rate > 2_000.0, "{rate} softirqs a second for 5,000 packets");
    assert_eq!(
        fs::read_to_string(lo).expect("sysfs"),
        steered,
        "the real loopback is left alone"
    );
}

#[test]
fn a_hog_takes_the_share_asked_for() {
    let fault = Fault::start(&["hog", "--duty", "20%", "--period", "5ms"]);
    // In user mode and in the kernel, in ticks of 10 ms, of all threads.
    let ran = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", fault.0.id())).expect("it runs");
        let fields = stat.rsplit(')').next().expect("a name in parentheses");
        let ticks = fields.split_whitespace().skip(11).take(2);
        let ticks: u64 = ticks.map(|n| n.parse::<u64>().expect("ticks")).sum();
        Duration::from_millis(10 * ticks)
    };
    let (begun, before) = (Instant::now(), ran());
    // On a busy machine it gets less than it asks for, but it does get something.
    while ran() < before + Duration::from_millis(200) && begun.elapsed() < Duration::from_secs(30) {
        thread::sleep(Duration::from_millis(10));
    }
    let took = ran() - before;
    let share = took.div_duration_f64(begun.elapsed());
    assert_eq!(fault.end(), Some(0));
    assert!(took >= Duration::from_millis(200), "{took:?} in 30 s");
    assert!(share <= 0.3, "{share} of a CPU");
}

#[test]
fn a_quota_throttles_and_is_removed() {
    if !able() {
        return;
    }
    let lab = || Command::new(env!("CARGO_BIN_EXE_tailscope-lab"));
    let output = lab()
        .args(["quota", "--quota-us", "2000", "--period-us", "20000", "--"])
        .args([
            env!("CARGO_BIN_EXE_tailscope-lab"),
            "hog",
            "--duration",
            "1s",
        ])
        .output()
        .expect("the lab was built");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let throttled: u64 = said
        .strip_prefix("throttled in ")
        .and_then(|rest| rest.split(' ').next()?.parse().ok())
        .expect("what the kernel counted");
    assert!(throttled > 20, "{said}");

    let mut hog = lab()
        .args(["hog", "--duration", "10s"])
        .spawn()
        .expect("the lab was built");
    let home = fs::read_to_string(format!("/proc/{}/cgroup", hog.id())).expect("it runs");
    let fault = Fault::start(&[
        "quota",
        "--quota-us",
        "2000",
        "--pid",
        &hog.id().to_string(),
    ]);
    let group = format!("tailscope-lab-{}", fault.0.id());
    until("the hog is in the group", || {
        let moved = fs::read_to_string(format!("/proc/{}/cgroup", hog.id())).expect("it runs");
        moved.contains(&group)
    });
    assert_eq!(fault.end(), Some(0));
    let back = fs::read_to_string(format!("/proc/{}/cgroup", hog.id())).expect("it runs");
    hog.kill().expect("it runs");
    hog.wait().expect("it ends");
    assert_eq!(back, home);
    for root in ["/sys/fs/cgroup", "/sys/fs/cgroup/cpu"] {
        assert!(!fs::exists(format!("{root}/{group}")).expect("cgroupfs"));
    }
}

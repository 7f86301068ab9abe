//! `packets`: the planted cause "network softirqs" (`softirq_net`) on a CPU of choice.
//!
//! On loopback the receiving softirq runs on the sender's CPU, where the sender itself would be
//! the larger cause. Receive packet steering (RPS) moves it: the sender stays on another CPU, and
//! the kernel hands each packet over to the CPU in `rps_cpus`, by an interrupt between the two.
//!
//! All of it happens in a network namespace of its own, with a loopback of its own: nobody else's
//! packets are steered, and however this ends, the kernel takes everything away with the process.

use std::fs;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;

use crate::clock::{Nanos, parse_duration};
use crate::stop::Stop;
use crate::{Usage, cpu};

/// In the namespace, where only `lo` exists.
const RPS_CPUS: &str = "/sys/class/net/lo/queues/rx-0/rps_cpus";

/// As many packets as a send can carry on every kernel that segments (UDP_MAX_SEGMENTS).
const SEGMENTS: u32 = 64;

/// Shorter rests are not slept: the kernel's timers are not that exact.
const SPIN: Nanos = Nanos(100_000);

/// Set for the second life of this program, inside the namespace.
const INSIDE: &str = "TAILSCOPE_LAB_INSIDE_NAMESPACE";

/// Make one CPU receive many packets.
#[derive(Args)]
#[command(after_help = "Examples:
  tailscope-lab packets --cpu 1 --rate 50000
  tailscope-lab packets --cpu 1 --rate 102400 --burst 512    5 ms apart, 512 in a row
  tailscope-lab packets --cpu 1 --rate 4e6 --burst 64 --storm 2ms --every 20ms

Needs root (CAP_SYS_ADMIN), `unshare` of util-linux and `ip` of iproute2.")]
pub struct Packets {
    /// The CPU that receives
    #[arg(long)]
    cpu: usize,

    /// The CPU that sends [default: the first other one]
    #[arg(long)]
    sender_cpu: Option<usize>,

    /// Packets per second
    #[arg(long, default_value_t = 50_000.0)]
    rate: f64,

    /// Packets that are sent in a row, up to 64 of them as one that the receiver takes apart
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    burst: u32,

    /// Send for so long at a time, each `--every` [default: without a rest]
    #[arg(long, value_parser = parse_duration, requires = "every")]
    storm: Option<Duration>,

    /// From one storm to the next
    #[arg(long, value_parser = parse_duration, requires = "storm")]
    every: Option<Duration>,

    /// Bytes in a packet
    #[arg(long, default_value_t = 64)]
    size: usize,

    /// Stop after this time [default: at Ctrl-C]
    #[arg(short, long, value_parser = parse_duration)]
    duration: Option<Duration>,
}

impl Packets {
    pub fn run(self) -> anyhow::Result<()> {
        let sender = self.sender_cpu.unwrap_or(usize::from(self.cpu == 0));
        if sender == self.cpu {
            return Err(Usage("--sender-cpu must be another than --cpu".to_owned()).into());
        }
        let rate_is_sane = self.rate > 0.0 && self.rate.is_finite();
        if !rate_is_sane || !(1..=65_000).contains(&self.size) {
            return Err(
                Usage("--rate must be above 0 and --size from 1 to 65000".to_owned()).into(),
            );
        }
        if std::env::var_os(INSIDE).is_none() {
            return enter_namespace();
        }
        cpu::pin(sender)?;
        fs::write(RPS_CPUS, cpu_mask(self.cpu))
            .with_context(|| format!("can't steer packets to CPU {} ({RPS_CPUS})", self.cpu))?;
        let stop = Stop::after(self.duration)?;
        let sent = self.send(&stop);
        // The namespace goes anyway; this also lets the kernel switch off its check for steering.
        fs::write(RPS_CPUS, "0").context("can't stop steering")?;
        eprintln!("{} packets sent", sent?);
        Ok(())
    }

    /// Sends to a socket that nobody reads: once it is full the kernel drops what comes, after all
    /// the softirq's work has been done.
    fn send(&self, stop: &Stop) -> anyhow::Result<u64> {
        let sink = UdpSocket::bind("127.0.0.1:0").context("can't open a socket")?;
        let source = UdpSocket::bind("127.0.0.1:0").context("can't open a socket")?;
        source.connect(sink.local_addr()?)?;
        segment(&source, self.size)?;
        let at_once = self.burst.min(SEGMENTS).min(65_000 / self.size as u32);
        let packets = vec![0; self.size * at_once as usize];
        let gap = Nanos((1e9 * f64::from(self.burst) / self.rate) as u64);
        rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1))?;
        let storms = self.storm.zip(self.every);
        let storms = storms.map(|(storm, every)| (Nanos::from(storm), Nanos::from(every)));
        let mut due = Nanos::now();
        let mut storm_began = due;
        let mut sent = 0;
        while !stop.due() {
            let mut rest = self.burst;
            while rest > 0 {
                let now = rest.min(at_once);
                source
                    .send(&packets[..self.size * now as usize])
                    .context("can't send")?;
                rest -= now;
            }
            sent += u64::from(self.burst);
            due = due + gap;
            if let Some((storm, every)) = storms
                && due > storm_began + storm
            {
                storm_began = (storm_began + every).max(Nanos::now());
                due = storm_began;
            }
            let rest = due - Nanos::now();
            if rest > SPIN {
                thread::sleep(Duration::from_nanos(rest.0));
            } else if rest.0 > 0 {
                while Nanos::now() < due {
                    std::hint::spin_loop();
                }
            } else {
                // Late: what was missed is not made up for, which would be another load.
                due = Nanos::now();
            }
        }
        Ok(sent)
    }
}

/// Lets one send carry many packets of `size` bytes (UDP_SEGMENT, Linux >= 4.18). The kernel takes
/// them apart where they are received, so the interrupt that hands them over is paid once and most
/// of the time goes into the softirq, as it does behind a card that coalesces.
fn segment(socket: &UdpSocket, size: usize) -> anyhow::Result<()> {
    let size = libc::c_int::try_from(size).context("--size is too large")?;
    // SAFETY: the option is an int, and `size` is one that outlives the call.
    let failed = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            (&raw const size).cast(),
            size_of_val(&size) as libc::socklen_t,
        )
    };
    if failed != 0 {
        return Err(std::io::Error::last_os_error()).context("can't send packets in one piece");
    }
    Ok(())
}

/// Replaces this process by itself in a new namespace. The new mounts are for /sys, which shows
/// the network namespace that it was mounted in.
fn enter_namespace() -> anyhow::Result<()> {
    let program = std::env::current_exe().context("can't find this program's file")?;
    let error = Command::new("unshare")
        .args(["--net", "--mount", "--", "sh", "-c"])
        .arg("ip link set lo up && mount -t sysfs sysfs /sys && exec \"$@\"")
        .arg("sh")
        .arg(program)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1")
        .exec();
    bail!("can't run 'unshare' (package util-linux): {error}")
}

/// As the kernel writes sets of CPUs: hexadecimal words of 32 bits, the highest first.
fn cpu_mask(cpu: usize) -> String {
    let mut mask = format!("{:x}", 1u32 << (cpu % 32));
    mask.push_str(&",00000000".repeat(cpu / 32));
    mask
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_written_as_the_kernel_reads_them() {
        assert_eq!(cpu_mask(0), "1");
        assert_eq!(cpu_mask(31), "80000000");
        assert_eq!(cpu_mask(33), "2,00000000");
        assert_eq!(cpu_mask(64), "1,00000000,00000000");
    }
}

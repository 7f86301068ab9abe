//! `hog`: the planted cause "another thread wants the CPU" (`preempted`, `runqueue`).

use std::thread;
use std::time::Duration;

use clap::Args;

use crate::clock::{Nanos, parse_duration};
use crate::stop::Stop;
use crate::{Usage, cpu};

/// Burn CPU time.
#[derive(Args)]
#[command(after_help = "Example: a fifth of CPU 1, in pieces of 2 ms
  tailscope-lab hog --cpu 1 --duty 20% --period 10ms --duration 30s")]
pub struct Hog {
    /// Burn on this CPU only
    #[arg(long)]
    cpu: Option<usize>,

    /// Share of each period to burn
    #[arg(long, default_value = "100%", value_parser = parse_percent)]
    duty: f64,

    /// Length of one burn and the rest after it
    #[arg(long, default_value = "10ms", value_parser = parse_duration)]
    period: Duration,

    /// How many threads burn
    #[arg(long, default_value_t = 1)]
    threads: u16,

    /// Offer the CPU to others all the time (sched_yield), not only when the kernel next looks
    #[arg(long)]
    yielding: bool,

    /// Stop after this time [default: at Ctrl-C]
    #[arg(short, long, value_parser = parse_duration)]
    duration: Option<Duration>,
}

impl Hog {
    pub fn run(self) -> anyhow::Result<()> {
        if self.period.is_zero() {
            return Err(Usage("--period must be longer than nothing".to_owned()).into());
        }
        cpu::pin_if_asked(self.cpu)?;
        let stop = Stop::after(self.duration)?;
        let period = Nanos::from(self.period);
        thread::scope(|scope| {
            for _ in 0..self.threads {
                scope.spawn(|| burn(period, self.duty, self.yielding, &stop));
            }
        });
        Ok(())
    }
}

/// The share is one of wall time: while another thread has the CPU, the burn counts on.
fn burn(period: Nanos, duty: f64, yielding: bool, stop: &Stop) {
    let length = Nanos((period.0 as f64 * duty) as u64);
    let mut begin = Nanos::now();
    while !stop.due() {
        while Nanos::now() < begin + length && !stop.interrupted() {
            if yielding {
                thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
        begin = begin + period;
        let rest = begin - Nanos::now();
        if rest.0 > 0 {
            thread::sleep(Duration::from_nanos(rest.0));
        }
    }
}

fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').ok_or("must end with %")?;
    match number.parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(percent / 100.0),
        _ => Err("must be above 0% and at most 100%".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_percentages() {
        assert_eq!(parse_percent("20%"), Ok(0.2));
        for wrong in ["20", "0%", "101%", "x%", "NaN%"] {
            assert!(parse_percent(wrong).is_err(), "{wrong}");
        }
    }
}

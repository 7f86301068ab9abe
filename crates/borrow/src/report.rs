//! The figures of a loan, as the text and the JSON show them.

use serde::Serialize;

use crate::account::{Account, Sums};
use crate::bootstrap::{Estimate, Intervals};
use crate::groups::Mechanism;
use crate::slo::Slo;

/// The quantiles that are reported.
const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)];

/// A quantile of the server's latency, in ns.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tail {
    /// `p50`, `p99` or `p99.9`.
    pub name: &'static str,
    /// With lending.
    pub lending_ns: Estimate,
    /// With the batch held back.
    pub held_back_ns: Estimate,
    /// The first over the second, less 1.
    pub change: Estimate,
}

/// What became of the SLO.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SloReport {
    /// As it was given.
    pub slo: String,
    /// Its quantile over all requests, in ns; null: too few requests.
    pub reached_ns: Option<u64>,
    /// Its limit.
    pub limit_ns: u64,
    /// Windows of ten seconds in which it was held.
    pub windows_held: u64,
    /// In which it was not.
    pub windows_broken: u64,
    /// With too few requests to say.
    pub windows_unknown: u64,
    /// The share of time that is lent now.
    pub lent_share: f64,
}

/// One kind of phase.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Side {
    /// Time of these phases, in ns.
    pub time_ns: u64,
    /// Requests that began in them.
    pub requests: u64,
    /// The share of the lent CPUs' time that was not idle; null: no such phase.
    pub busy: Option<f64>,
    /// The share of the lent CPUs' time that the batch had; null: no such phase.
    pub batch: Option<f64>,
    /// How long a request waited for a CPU in the mean, in ns; null: no request.
    pub waited_ns: Option<f64>,
}

/// The whole report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Always `borrow`.
    pub kind: &'static str,
    /// The server's process.
    pub server: u32,
    /// The batch command.
    pub command: Vec<String>,
    /// How the batch is kept below the server.
    pub mechanism: Mechanism,
    /// The lent CPUs, at the end.
    pub cpus: Vec<u32>,
    /// How long the batch ran, in ns, held back or not.
    pub elapsed_ns: u64,
    /// CPU time of the batch, in ns.
    pub borrowed_ns: u64,
    /// With lending.
    pub lending: Side,
    /// With the batch held back.
    pub held_back: Side,
    /// The server's latency.
    pub tails: Vec<Tail>,
    /// What became of `--slo`.
    pub slo: Option<SloReport>,
    /// Requests that began during or shortly after a switch of phases; they count for neither.
    pub between: u64,
    /// Requests that could not be counted.
    pub lost: u64,
    /// Switches between phases.
    pub switches: u64,
    /// The median time of a switch until the batch stood still or could run, in ns.
    pub switch_p50_ns: Option<u64>,
    /// Threads that had set their own policy.
    pub policies_put_back: u64,
    /// Threads that had set their own affinity.
    pub affinities_put_back: u64,
    /// Processes that had left the cgroups.
    pub groups_put_back: u64,
    /// Threads or processes that could not be put back.
    pub not_put_back: u64,
    /// Processes of the batch now.
    pub processes: u64,
    /// What the reader has to know before the figures.
    pub notes: Vec<String>,
}

fn side(sums: &Sums) -> Side {
    let of_cpus = |ns: u64| (sums.cpu_ns > 0).then(|| ns as f64 / sums.cpu_ns as f64);
    Side {
        time_ns: sums.time_ns,
        requests: sums.requests,
        busy: of_cpus(sums.idle_ns).map(|idle| (1.0 - idle).clamp(0.0, 1.0)),
        batch: of_cpus(sums.batch_ns),
        waited_ns: (sums.requests > 0).then(|| sums.waited_ns as f64 / sums.requests as f64),
    }
}

impl Report {
    /// Of an account. `lent_share`: what an SLO allows now.
    #[must_use]
    pub fn of(
        account: &Account,
        mechanism: &Mechanism,
        server: u32,
        command: &[String],
        slo: Option<(Slo, f64)>,
        intervals: Intervals,
    ) -> Self {
        let quantiles = account.quantiles(&QUANTILES.map(|(_, q)| q), intervals);
        let tails = QUANTILES.iter().zip(quantiles);
        let [windows_held, windows_broken, windows_unknown] = account.windows();
        let usage = &account.latest;
        let mut report = Self {
            kind: "borrow",
            server,
            command: command.to_vec(),
            mechanism: mechanism.clone(),
            cpus: usage.cpus.clone(),
            elapsed_ns: account.elapsed_ns(),
            borrowed_ns: usage.batch_ns,
            lending: side(&account.on),
            held_back: side(&account.off),
            tails: tails
                .map(|((name, _), [on, off, change])| Tail {
                    name,
                    lending_ns: on,
                    held_back_ns: off,
                    change,
                })
                .collect(),
            slo: slo.map(|(slo, lent_share)| SloReport {
                slo: slo.to_string(),
                reached_ns: account.overall(slo.quantile),
                limit_ns: slo.limit_ns,
                windows_held,
                windows_broken,
                windows_unknown,
                lent_share,
            }),
            between: account.between,
            lost: account.lost,
            switches: account.switches,
            switch_p50_ns: account.holds.quantile(0.5),
            policies_put_back: usage.policies_put_back,
            affinities_put_back: usage.affinities_put_back,
            groups_put_back: usage.groups_put_back,
            not_put_back: usage.not_put_back,
            processes: usage.processes,
            notes: Vec::new(),
        };
        report.notes = report.notes();
        report
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let p99 = self.tails.iter().find(|tail| tail.name == "p99");
        if self.lending.requests + self.held_back.requests == 0 {
            notes.push(
                "what lending cost the server is not known: no request of it was recorded"
                    .to_owned(),
            );
        } else if p99.is_none_or(|tail| tail.change.value.is_none()) {
            notes.push(format!(
                "what lending cost the server's p99 is not known: {} requests without lending are too \
                 few (1,000 are needed)",
                self.held_back.requests
            ));
        } else if p99.is_none_or(|tail| tail.change.low.is_none()) {
            notes.push(
                "how sure the figures are is not known: there were fewer than ten phases without \
                 lending"
                    .to_owned(),
            );
        }
        if let Some(why) = &self.mechanism.idle_group_why {
            notes.push(format!(
                "the batch has only SCHED_IDLE, and no cpu.idle cgroup: {why}"
            ));
        }
        if self.mechanism.smt {
            notes.push(
                "this machine has hyperthreads: a batch on the other thread of a core slows the server, \
                 and is not held back for that"
                    .to_owned(),
            );
        }
        if self.lost > 0 {
            notes.push(format!("{} requests were lost to these figures", self.lost));
        }
        if self.not_put_back > 0 {
            notes.push(format!(
                "{} times a thread of the batch could not be put back",
                self.not_put_back
            ));
        }
        notes
    }
}

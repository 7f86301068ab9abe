//! What the kernel's programs keep: `running:CPU`, and `meter:PID:CAUSE` or `meter:PID/TID:CAUSE`.
//!
//! The programs live as long as the resolver. A meter's cause grows when the kernel charges it: at the end
//! of a wait, of an interrupt or of a fault. So its rate between two samples is 0 or large, and
//! what is of use is its rate by tag or over time.

use std::os::fd::AsFd;
use std::sync::Arc;

use tailscope_kernel::{Config, Kernel, Running};
use tailscope_signals::meters::{self, Meters};
use tailscope_signals::view::View;
use tailscope_trace::Cause;

use super::{ResolveError, Wanted};
use crate::signal::{Names, Reader, Role, Signal};

/// The kernel's programs, each loaded when it is first asked for.
#[derive(Default)]
pub(super) struct Programs {
    running: Option<(Running, Arc<View>)>,
    kernel: Option<Kernel>,
}

impl Programs {
    /// The thread that runs on a CPU.
    pub(super) fn running(&mut self, signal: String, cpu: u32) -> Result<Signal, ResolveError> {
        let refused = |why: String| ResolveError::None {
            signal: signal.clone(),
            why,
        };
        if cpu as usize >= Running::CPUS {
            return Err(refused(format!(
                "CPUs have numbers below {}",
                Running::CPUS
            )));
        }
        if self.running.is_none() {
            let running = Running::load().map_err(|e| ResolveError::Machine {
                signal: signal.clone(),
                why: e.to_string(),
            })?;
            let view = View::map(running.map(), 0, Running::CPUS * Running::STRIDE)
                .map_err(|e| refused(format!("can't map the table of running threads: {e}")))?;
            self.running = Some((running, view));
        }
        let (_, view) = self.running.as_ref().expect("just made");
        let word = view
            .word(cpu as usize * Running::STRIDE, 8)
            .expect("inside, by the check above");
        Ok(Signal {
            name: signal,
            kind: Some(Role::Tag),
            owner: None,
            names: Names::Threads,
            how: "a load from the memory of a kernel program".into(),
            reader: Reader::Load(word),
        })
    }

    /// A cause of a thread's meter.
    pub(super) fn meter(
        &mut self,
        wanted: &Wanted,
        tid: u32,
        cause: Cause,
    ) -> Result<Signal, ResolveError> {
        let Some(place) = Cause::METERED.iter().position(|one| *one == cause) else {
            return Err(wanted.none(format!("{cause} is not metered by the kernel")));
        };
        let pid = wanted.owner.pid;
        if self.kernel.is_none() {
            let config = Config {
                follow_children: false,
                ..Config::default()
            };
            self.kernel = Some(Kernel::load(&config).map_err(|e| wanted.machine(e.to_string()))?);
        }
        let kernel = self.kernel.as_mut().expect("just made");
        kernel.watch(pid).map_err(|e| wanted.none(e.to_string()))?;
        for map in kernel.own_meters() {
            let meters = Meters::map(map.as_fd()).map_err(wanted.system("map its meters"))?;
            let is_ours = |slot: &u32| meters.kernel_tid(*slot).is_ok_and(|now| now == tid);
            let Some(slot) = (0..Meters::SLOTS).find(is_ours) else {
                continue;
            };
            let view = View::map(map.as_fd(), 0, meters::bytes())
                .map_err(wanted.system("map its meters"))?;
            let word = view
                .word(meters::cause_at(slot, place), 8)
                .ok_or_else(|| wanted.none("its meter is not aligned"))?;
            return Ok(Signal {
                name: wanted.signal.clone(),
                kind: Some(Role::Counter),
                owner: Some(Arc::clone(&wanted.owner)),
                names: Names::None,
                how: "ns, by a load from the meter that kernel programs keep".into(),
                reader: Reader::Load(word),
            });
        }
        Err(wanted.none(format!("process {pid} has no thread {tid}")))
    }
}

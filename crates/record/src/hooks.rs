//! Whether this kernel has what the sources of spans need.

use tailscope_kernel::{Kernel, Measurement, Mechanisms, SocketSpans};

use crate::ResolvedProbes;
use crate::options::RecordError;

/// Attaches to all probes, if this kernel can.
pub(crate) fn attach_probes(
    kernel: &mut Kernel,
    resolved: &[ResolvedProbes],
) -> Result<(), RecordError> {
    for probes in resolved {
        let failed = |why| RecordError::Source {
            source_name: probes.source.to_string(),
            why,
        };
        let uprobes = kernel.mechanisms().get(Measurement::Uprobe);
        if let Some(missing) = uprobes.filter(|uprobes| uprobes.hook.is_none()) {
            return Err(failed(missing.why.clone()));
        }
        for probe in &probes.probes {
            kernel
                .attach_probe(probe)
                .map_err(|e| failed(e.to_string()))?;
        }
    }
    Ok(())
}

/// Whether this kernel tells of the requests that are asked for.
pub(crate) fn check_sockets(
    asked: Option<SocketSpans>,
    mechanisms: &Mechanisms,
) -> Result<(), RecordError> {
    let (source, needed, instead) = match asked {
        None => return Ok(()),
        Some(kind) if !mechanisms.measures(Measurement::Sockets) => {
            let source = match kind {
                SocketSpans::Slices => "request",
                SocketSpans::FromReceive | SocketSpans::FromReady => "syscall:",
            };
            (source, Measurement::Sockets, "mark spans with the SDK")
        }
        Some(SocketSpans::FromReady) => (
            "syscall:ready..send",
            Measurement::Ready,
            "use --span syscall:recv..send",
        ),
        Some(SocketSpans::Slices) => (
            "request",
            Measurement::Ready,
            "use --span syscall:recv..send",
        ),
        Some(SocketSpans::FromReceive) => return Ok(()),
    };
    match mechanisms.get(needed) {
        Some(missing) if missing.hook.is_none() => Err(RecordError::Source {
            source_name: source.to_owned(),
            why: format!("{}; {instead}", missing.why),
        }),
        _ => Ok(()),
    }
}

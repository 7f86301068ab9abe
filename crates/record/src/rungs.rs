//! Whether this kernel has what the sources of spans need.

use tailscope_kernel::{Kernel, Ladder, SocketSpans};

use crate::Aim;
use crate::options::RecordError;

/// Attaches to all probes, if this kernel can.
pub(crate) fn attach_probes(kernel: &mut Kernel, aims: &[Aim]) -> Result<(), RecordError> {
    for aim in aims {
        let failed = |why| RecordError::Source {
            source_name: aim.source.to_string(),
            why,
        };
        let rung = kernel.ladder().get("uprobe");
        if let Some(rung) = rung.filter(|rung| rung.mechanism.is_none()) {
            return Err(failed(rung.why.clone()));
        }
        for probe in &aim.probes {
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
    ladder: &Ladder,
) -> Result<(), RecordError> {
    let (source, rung, instead) = match asked {
        None => return Ok(()),
        Some(_) if !ladder.measures("sockets") => {
            ("syscall:", "sockets", "mark spans with the SDK")
        }
        Some(SocketSpans::FromReady) => (
            "syscall:ready..send",
            "ready",
            "use --span syscall:recv..send",
        ),
        Some(SocketSpans::FromReceive) => return Ok(()),
    };
    match ladder.get(rung) {
        Some(rung) if rung.mechanism.is_none() => Err(RecordError::Source {
            source_name: source.to_owned(),
            why: format!("{}; {instead}", rung.why),
        }),
        _ => Ok(()),
    }
}

//! Whether the kernel steps through an instruction with a probe, which takes many times longer than to
//! emulate it.

use super::Source;

/// Whether the kernel steps through the instruction at the first place.
pub(super) fn is_stepped(source: &Source) -> bool {
    match source {
        Source::Probe(places) => places.iter().any(|place| {
            let mut bytes = [0u8; 4];
            let file = std::fs::File::open(&place.file);
            file.and_then(|file| {
                std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, place.offset)
            })
            .is_ok_and(|()| steps_through(&bytes))
        }),
        _ => false,
    }
}

/// On x86-64 the kernel emulates pushes, no-ops, near calls and jumps (arch/x86/kernel/uprobes.c). On
/// arm64 it emulates branches and no-ops; probes there are taken for emulated.
fn steps_through(bytes: &[u8; 4]) -> bool {
    if cfg!(not(target_arch = "x86_64")) {
        return false;
    }
    let is_emulated = matches!(
        bytes,
        [0x50..=0x57 | 0x90 | 0xe8 | 0xe9 | 0xeb | 0x70..=0x7f, ..]
            | [0x41, 0x50..=0x57, ..]
            | [0x66, 0x90, ..]
            | [0x0f, 0x1f | 0x80..=0x8f, ..]
    );
    !is_emulated
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pushes_and_no_ops_are_emulated_and_moves_are_not() {
        if cfg!(not(target_arch = "x86_64")) {
            println!("skipped: instructions of x86-64");
            return;
        }
        for bytes in [[0x55, 0, 0, 0], [0x41, 0x54, 0, 0], [0x0f, 0x1f, 0x44, 0]] {
            assert!(!steps_through(&bytes), "{bytes:?}");
        }
        for bytes in [
            [0x48, 0x83, 0xec, 0x08],
            [0x89, 0xf8, 0, 0],
            [0xf3, 0x0f, 0x1e, 0xfa],
        ] {
            assert!(steps_through(&bytes), "{bytes:?}");
        }
    }
}

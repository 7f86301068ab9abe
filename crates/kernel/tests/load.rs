//! The programs on this machine's own kernel. As root only: else skipped, and said so.
#![allow(missing_docs, clippy::unwrap_used)]

use tailscope_kernel::{Config, Kernel, LoadError, SocketSpans};

fn load(config: &Config) -> Option<Kernel> {
    match Kernel::load(config) {
        Ok(kernel) => Some(kernel),
        Err(LoadError::Privilege(missing)) => {
            println!("skipped: {missing:?}");
            None
        }
        Err(e) => panic!("{e}: {e:?}"),
    }
}

#[test]
fn what_no_hook_sees_of_a_fault_is_measured_first() {
    for sample in [1 << 32, 1 << 20] {
        let Some(kernel) = load(&Config {
            sample,
            ..Config::default()
        }) else {
            return;
        };
        let rung = kernel.ladder().get("fault").unwrap();
        println!("{rung:?}");
        assert!(rung.mechanism.is_none() || rung.why.contains("ns are added to each"));
        // The child that took the faults is nobody's business any more.
        assert_eq!(kernel.losses().threads, 0);
    }
}

#[test]
fn the_programs_load_and_attach_here() {
    let config = Config {
        sockets: Some(SocketSpans::FromReady),
        probes: true,
        ..Config::default()
    };
    let Some(mut kernel) = load(&config) else {
        return;
    };
    for (what, rung) in kernel.ladder().iter() {
        println!("{what}: {rung:?}");
    }
    kernel.watch(std::process::id()).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(10));
    println!("{:?}", kernel.losses());
    assert_eq!(kernel.losses().threads, 0);
}

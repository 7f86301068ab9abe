//! The programs on this machine's own kernel. As root only: else skipped, and said so.
#![allow(missing_docs, clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tailscope_kernel::{Config, Kernel, LoadError, Measurement, SocketSpans};
use tailscope_signals::abi;

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
        let fault = kernel.mechanisms().get(Measurement::Fault).unwrap();
        println!("{fault:?}");
        assert!(fault.hook.is_none() || fault.why.contains("ns are added to each"));
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
    for (what, mechanism) in kernel.mechanisms().iter() {
        println!("{what}: {mechanism:?}");
    }
    kernel.watch(std::process::id()).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(10));
    println!("{:?}", kernel.losses());
    assert_eq!(kernel.losses().threads, 0);
}

#[test]
fn the_programs_that_follow_requests_load_with_and_without_names() {
    for (names, traces) in [(true, true), (false, true), (false, false)] {
        let config = Config {
            sockets: Some(SocketSpans::Slices),
            names,
            traces,
            ..Config::default()
        };
        let Some(kernel) = load(&config) else {
            return;
        };
        assert_eq!(kernel.losses().threads, 0);
    }
}

#[test]
fn stacks_are_sampled_where_a_thread_computes_and_where_it_blocks() {
    let config = Config {
        sockets: Some(SocketSpans::Slices),
        stacks: Some(1_000_000),
        ..Config::default()
    };
    let Some(mut kernel) = load(&config) else {
        return;
    };
    kernel.watch(std::process::id()).unwrap();
    let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    let start = std::time::Instant::now();
    let (mut computed, mut blocked) = (None, None);
    while computed.is_none() || blocked.is_none() {
        assert!(start.elapsed().as_secs() < 20, "{:?}", kernel.losses());
        let turn = std::time::Instant::now();
        while turn.elapsed().as_millis() < 5 {
            std::hint::black_box(turn);
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
        kernel.stacks(|sample| match sample.cause {
            _ if sample.tid != tid => {}
            None => computed = Some(sample),
            Some(_) => blocked = Some(sample),
        });
    }
    let (computed, blocked) = (computed.unwrap(), blocked.unwrap());
    assert_eq!((computed.pid, computed.ns), (std::process::id(), 1_000_000));
    assert_eq!(blocked.cause, Some(abi::TS_SLEEP as u8));
    assert!(blocked.ns >= 5_000_000 && !blocked.kernel.is_empty());
    for sample in [computed, blocked] {
        let registers = sample.registers;
        assert!(registers.ip != 0 && sample.from <= registers.sp);
        assert!(sample.stack.len() as u64 > registers.sp - sample.from);
    }
}

/// More requests than any CPU's ring has room for.
const BURST: usize = 30_000;

#[test]
fn a_burst_of_rows_wakes_whoever_waits_for_news_before_a_ring_is_full() {
    let config = Config {
        sockets: Some(SocketSpans::FromReceive),
        follow_children: false,
        ..Config::default()
    };
    let Some(mut kernel) = load(&config) else {
        return;
    };
    kernel.watch(std::process::id()).unwrap();
    kernel.events(|_| ());
    let waking = |kernel: &Kernel, ms: i64| {
        let fd = PollFd::from_borrowed_fd(kernel.events_fd(), PollFlags::IN);
        let patience = Timespec {
            tv_sec: 0,
            tv_nsec: ms * 1_000_000,
        };
        poll(&mut [fd], Some(&patience)).unwrap() > 0
    };
    let (mut client, server) = connected();
    let echo = std::thread::spawn(move || answer(server));
    // A thread that begins is no news.
    ask(&mut client, 100);
    assert!(!waking(&kernel, 50), "woken up for a hundred rows");
    let mut asked = 0;
    while !waking(&kernel, 0) && asked < BURST {
        ask(&mut client, 100);
        asked += 100;
    }
    drop(client);
    echo.join().unwrap();
    println!("woken up after {asked} requests");
    assert!(asked < BURST, "not woken up for {asked} rows");
    let mut rows = 0;
    kernel.ended().0.sockets(|_| rows += 1);
    assert!(rows >= asked, "{rows} rows of {asked} requests");
    assert_eq!(kernel.losses().rows, 0);
}

fn connected() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_nodelay(true).unwrap();
    let (server, _) = listener.accept().unwrap();
    server.set_nodelay(true).unwrap();
    (client, server)
}

fn ask(client: &mut TcpStream, times: usize) {
    for _ in 0..times {
        client.write_all(b"?").unwrap();
        client.read_exact(&mut [0]).unwrap();
    }
}

fn answer(mut server: TcpStream) {
    let mut byte = [0];
    while server.read(&mut byte).unwrap() > 0 {
        server.write_all(&byte).unwrap();
    }
}

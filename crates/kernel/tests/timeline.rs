//! The timeline's programs on this machine's kernel. Needs root.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use tailscope_kernel::missing_capabilities;
use tailscope_kernel::timeline::{Config, Events, Tier};
use tailscope_signals::event::{Event, What};

#[test]
fn what_this_process_does_with_a_socket_is_told_in_its_order() {
    if let Some(missing) = missing_capabilities().first() {
        println!("skipped: {} is missing", missing.name);
        return;
    }
    let events = Events::load(Config {
        memory: 8 << 20,
        follow_children: true,
        probes: false,
        tier: Tier::All,
    })
    .expect("the programs load");
    let rings = events.rings().expect("mapped");
    assert!(events.watch(std::process::id()) && events.watch(std::process::id()));
    assert_eq!(events.watched(), [std::process::id()]);
    let from: Vec<u64> = (0..rings.cpus()).map(|cpu| rings.head(cpu)).collect();

    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
    let (mut server, _) = listener.accept().expect("accepted");
    client.write_all(&[1; 100]).expect("sent");
    server.read_exact(&mut [0; 100]).expect("received");
    server.write_all(&[1; 3000]).expect("answered");
    client.read_exact(&mut [0; 3000]).expect("answer received");

    let mut all = Vec::new();
    for (cpu, from) in from.into_iter().enumerate() {
        let read = rings.read(cpu, from, rings.head(cpu), |_, bytes| {
            all.extend(Event::parse(bytes));
            true
        });
        assert_eq!(read.overwritten, 0);
    }
    all.sort_by_key(|event| event.at);
    let of = |wanted: &dyn Fn(&What) -> bool| all.iter().position(|event| wanted(&event.what));
    let received = of(&|what| matches!(what, What::Receive { bytes: 100, .. })).expect("received");
    let What::Receive {
        socket: at,
        end: Some(read),
        ..
    } = all[received].what
    else {
        panic!("it is TCP: {:?}", all[received]);
    };
    // The request's packet carries the sequence up to which the server then read, and so does
    // what the client's device took: the same bytes by the same number.
    let left = of(&|what| matches!(what, What::Transmit { end, bytes: 100, .. } if *end == read));
    let came = of(
        &|what| matches!(what, What::TcpIn { socket, end, bytes: 100, .. } if *socket == at && *end == read),
    );
    let ready = of(&|what| matches!(what, What::Ready { socket } if *socket == at));
    assert!(left.is_some() && left < came && came < ready && ready < Some(received));
    let sent = of(&|what| matches!(what, What::Send { bytes: 3000, .. })).expect("sent");
    let What::Send {
        socket,
        end: Some(written),
        ..
    } = all[sent].what
    else {
        panic!("it is TCP: {:?}", all[sent]);
    };
    assert_eq!(socket, at);
    let out = of(
        &|what| matches!(what, What::Transmit { socket, end, .. } if *socket == at && *end == written),
    );
    assert!(out.is_some_and(|out| out > received));
    let calls = |number: i64| {
        all.iter()
            .filter(|event| {
                matches!(event.what, What::SyscallIn { number: n, .. } if i64::from(n) == number)
            })
            .count()
    };
    assert!(calls(libc::SYS_accept4) == 1 && calls(libc::SYS_connect) == 1);
}

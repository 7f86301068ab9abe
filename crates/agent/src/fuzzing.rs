//! What `make fuzz` calls: parsers of foreign bytes that nobody else needs.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use tailscope_trace::CauseSet;

use crate::config::Config;
use crate::otlp::{self, Counts};

/// The text of a configuration.
pub fn config(text: &str) {
    let _ = Config::parse(text);
}

/// A request at `/metrics`, whole and in part.
pub fn metrics_request(bytes: &[u8]) {
    crate::scrape::fuzz(bytes);
}

/// What a collector answers.
pub fn collector_answer(bytes: &[u8]) {
    let listener = TcpListener::bind((next_address(), 0)).expect("a port");
    let address = listener.local_addr().expect("it has one");
    let text = format!(
        "[[process]]\nname = \"x\"\n[otlp]\nendpoint = \"http://{address}\"\ntimeout = \"1s\"\n"
    );
    let config = Config::parse(&text).unwrap_or_else(|(_, why)| panic!("{why}"));
    let otlp = config.otlp.expect("it has a collector");
    let tls = otlp::tls(&otlp).expect("none is needed");
    thread::scope(|scope| {
        scope.spawn(|| {
            let Ok((mut stream, _)) = listener.accept() else {
                return;
            };
            let mut head = [0; 4096];
            let _ = stream.read(&mut head);
            let _ = stream.write_all(bytes);
            let _ = stream.shutdown(Shutdown::Write);
            // Until the client has read it: a reset would take it away.
            let _ = stream.read(&mut head);
        });
        otlp::fuzz(&otlp, tls, CauseSet::default(), Arc::new(Counts::default()));
    });
}

/// An address of this machine. Closed connections keep their ports for a minute, so all the ports
/// of one address are soon taken.
fn next_address() -> Ipv4Addr {
    static INPUTS: AtomicU32 = AtomicU32::new(0);
    const PORTS: u32 = 8192;
    let [_, high, middle, low] = (INPUTS.fetch_add(1, Ordering::Relaxed) / PORTS).to_be_bytes();
    Ipv4Addr::new(127, high, middle, low.max(1))
}

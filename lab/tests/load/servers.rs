//! Servers under load: some that answer as a test says, and a real memcached.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Serves each connection with `serve` on a thread of its own.
pub fn server(serve: impl Fn(TcpStream) + Send + Copy + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            stream.set_nodelay(true).expect("a TCP socket");
            thread::spawn(move || serve(stream));
        }
    });
    address
}

/// Answers every line of a get with a miss, every set with STORED, after `before` ran.
pub fn answer_memcached(mut stream: TcpStream, mut before: impl FnMut(u64)) {
    let mut lines = BufReader::new(stream.try_clone().expect("a descriptor")).lines();
    let mut gets = 0;
    while let Some(Ok(line)) = lines.next() {
        let answer: &[u8] = if line.starts_with("set ") {
            lines.next();
            b"STORED\r\n"
        } else {
            gets += 1;
            before(gets);
            b"END\r\n"
        };
        if stream.write_all(answer).is_err() {
            return;
        }
    }
}

/// Answers each request of a connection with `answer`, after a pause.
pub fn answer_http(stream: TcpStream, answer: &str, pause: Duration, requests: usize) {
    let mut writer = stream.try_clone().expect("a descriptor");
    let mut left = requests;
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        if !line.is_empty() {
            continue;
        }
        thread::sleep(pause);
        left -= 1;
        if writer.write_all(answer.as_bytes()).is_err() || left == 0 {
            return;
        }
    }
}

/// Nobody has this port at this moment.
fn free_address() -> SocketAddr {
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
    free.local_addr().expect("bound")
}

/// A memcached that ends with the test.
pub struct Memcached {
    child: Child,
    pub address: SocketAddr,
}

impl Memcached {
    /// None, with the reason printed, where it is not installed.
    pub fn start() -> Option<Self> {
        // Between our finding a free port and its taking it somebody else can: then another one.
        (0..10).find_map(|_| Self::start_at(free_address()))
    }

    /// None: it is not installed, which is printed, or the port is taken.
    fn start_at(address: SocketAddr) -> Option<Self> {
        let child = Command::new("memcached")
            .args([
                "-u",
                "nobody",
                "-l",
                "127.0.0.1",
                "-t",
                "1",
                "-p",
                &address.port().to_string(),
            ])
            .stderr(Stdio::null())
            .spawn();
        let Ok(child) = child else {
            eprintln!("skipped: memcached is not installed");
            return None;
        };
        let mut server = Self { child, address };
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(address).is_err() {
            assert!(Instant::now() < deadline, "memcached does not listen");
            if server.child.try_wait().expect("our child").is_some() {
                return None;
            }
            thread::sleep(Duration::from_millis(10));
        }
        // Somebody else may serve that port, and ours have ended for it.
        let is_ours = server.child.try_wait().expect("our child").is_none();
        is_ours.then_some(server)
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

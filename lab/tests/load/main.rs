//! The load generator against servers whose behaviour is known.

mod servers;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use servers::{Memcached, answer_http, answer_memcached, server};

fn lab(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tailscope-lab"));
    command.args(args);
    command
}

fn load(target: &str, address: SocketAddr, args: &[&str]) -> Output {
    let address = if target == "--http" {
        format!("http://{address}/")
    } else {
        address.to_string()
    };
    lab(&["load", target, &address, "--warmup", "100ms", "--json"])
        .args(args)
        .output()
        .expect("the lab was built")
}

/// The last line of the output.
fn report(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.lines().last().expect("a report")).expect("JSON")
}

#[test]
fn a_real_memcached_answers_at_the_rate_asked_for() {
    let Some(memcached) = Memcached::start() else {
        return;
    };
    let args = [
        "--rate",
        "2000",
        "--duration",
        "1s",
        "--keys",
        "500",
        "--set-ratio",
        "0.1",
    ];
    let output = load("--memcached", memcached.address, &args);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report = report(&output);
    let rate = report["rate"].as_f64().expect("a number");
    assert!((1600.0..2400.0).contains(&rate), "{rate}");
    assert_eq!(
        (&report["errors"], &report["misses"]),
        (&0.into(), &0.into())
    );
    assert_eq!(report["unanswered"], 0);
    assert!(report["latency_ns"]["p50"].as_u64() > Some(1_000));
    assert!(report["lag_ns"]["p50"].as_u64() < report["latency_ns"]["p50"].as_u64());
}

#[test]
fn a_closed_loop_reports_its_intervals() {
    let Some(memcached) = Memcached::start() else {
        return;
    };
    let args = [
        "--closed-loop",
        "--duration",
        "500ms",
        "--report-every",
        "100ms",
    ];
    let output = load("--memcached", memcached.address, &args);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let lines: Vec<Value> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let intervals = lines
        .iter()
        .filter(|line| line["kind"] == "interval")
        .count();
    // One is longer where it had no CPU at its end, so there may be fewer, but none is shorter.
    assert!((1..=6).contains(&intervals), "{intervals}");
    // An interval counts all its replies, also of requests that were due in the warm-up; what came
    // after the last one is in the report alone. So neither sum bounds the other.
    let told = lines
        .iter()
        .filter(|line| line["kind"] == "interval" && line["warmup"] == false);
    let counted: u64 = told.filter_map(|line| line["count"].as_u64()).sum();
    let all = report(&output)["count"].as_u64().expect("a number");
    assert!(counted > 0 && all > 0, "{counted} and {all}");
}

/// The point of the open loop: who would have come in a pause is charged for it.
#[test]
fn a_pause_is_charged_to_every_request_that_was_due_in_it() {
    let address = server(|stream| {
        answer_memcached(stream, |gets| {
            if gets == 300 {
                thread::sleep(Duration::from_millis(300));
            }
        });
    });
    let args = [
        "--rate",
        "1000",
        "--duration",
        "1s",
        "--connections",
        "1",
        "--keys",
        "10",
    ];
    let report = report(&load("--memcached", address, &args));
    let over_50ms: u64 = report["buckets"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|bucket| bucket[0].as_u64() > Some(50_000_000))
        .filter_map(|bucket| bucket[1].as_u64())
        .sum();
    // 300 requests were due in the pause of 300 ms; the last 50 ms of it cost less than that.
    assert!((180..500).contains(&over_50ms), "{over_50ms}");
}

#[test]
fn a_server_that_dies_ends_the_run_with_what_was_measured() {
    let address = server(|stream| {
        let line = stream.try_clone().expect("a descriptor");
        answer_memcached(stream, |gets| {
            if gets > 200 {
                let _ = line.shutdown(std::net::Shutdown::Both);
            }
        });
    });
    let args = [
        "--rate",
        "1000",
        "--duration",
        "5s",
        "--connections",
        "1",
        "--keys",
        "10",
    ];
    let output = load("--memcached", address, &args);
    assert_eq!(output.status.code(), Some(3));
    let report = report(&output);
    assert!(report["count"].as_u64() > Some(20), "{report}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("did the server die?"));
}

#[test]
fn no_server_and_another_protocol_are_told_apart() {
    // Below the ports that are given to whoever asks for any.
    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    let output = load("--memcached", nobody, &["--keys", "10"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is the server running there?"));

    let http = server(|mut stream| {
        let _ = stream.read(&mut [0; 1000]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        let _ = stream.read(&mut [0; 1000]);
    });
    let output = load("--memcached", http, &["--keys", "10"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("does not speak memcached"));
}

#[test]
fn http_goes_on_when_the_server_closes_now_and_then() {
    let address = server(|mut stream| {
        let lines = BufReader::new(stream.try_clone().expect("a descriptor")).lines();
        let mut left = 50;
        for line in lines.map_while(Result::ok) {
            if !line.is_empty() {
                continue;
            }
            left -= 1;
            let close = if left == 0 {
                "Connection: close\r\n"
            } else {
                ""
            };
            let answer = format!("HTTP/1.1 200 OK\r\n{close}Content-Length: 5\r\n\r\nhello");
            if stream.write_all(answer.as_bytes()).is_err() || left == 0 {
                return;
            }
        }
    });
    let output = load("--http", address, &["--rate", "500", "--duration", "1s"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report = report(&output);
    assert!(report["reconnects"].as_u64() > Some(3), "{report}");
    assert_eq!(
        (&report["errors"], &report["unanswered"]),
        (&0.into(), &0.into())
    );
    assert!(report["count"].as_u64() > Some(350));
}

#[test]
fn each_request_has_a_connection_of_its_own_if_asked_for() {
    // A body without a length, which ends with the connection.
    let address = server(|stream| {
        answer_http(stream, "HTTP/1.0 200 OK\r\n\r\nhello", Duration::ZERO, 1);
    });
    let asked = ["--rate", "200", "--duration", "1s", "--fresh"];
    let output = load("--http", address, &asked);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report = report(&output);
    assert_eq!(report["fresh"], true);
    assert_eq!(
        (
            &report["errors"],
            &report["unanswered"],
            &report["reconnects"]
        ),
        (&0.into(), &0.into(), &0.into())
    );
    assert!(report["count"].as_u64() > Some(120), "{report}");
}

#[test]
fn what_a_server_takes_is_in_the_latency_without_the_generators_own_delay() {
    let address = server(|stream| {
        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        answer_http(stream, answer, Duration::from_millis(20), usize::MAX);
    });
    // On one connection requests wait for each other in the client, which is no fault of the server.
    let asked = ["--rate", "40", "--duration", "2s", "--connections", "1"];
    let report = report(&load("--http", address, &asked));
    let served = &report["served_ns"];
    assert!(served["min"].as_u64() >= Some(20_000_000), "{report}");
    for quantile in ["p50", "p99", "max"] {
        assert!(
            served[quantile].as_u64() <= report["latency_ns"][quantile].as_u64(),
            "{report}"
        );
    }
    assert!(
        served["mean"].as_f64() < report["latency_ns"]["mean"].as_f64(),
        "{report}"
    );
}

#[test]
fn ctrl_c_prints_what_there_is() {
    let address = server(|stream| answer_memcached(stream, |_| ()));
    let mut child = lab(&["load", "--memcached", &address.to_string(), "--keys", "10"])
        .args([
            "--rate",
            "500",
            "--duration",
            "60s",
            "--warmup",
            "0s",
            "--report-every",
            "50ms",
            "--json",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the lab was built");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut lines =
        lines.map(|line| -> Value { serde_json::from_str(&line.expect("text")).expect("JSON") });
    let mut count = 0;
    while count <= 50 {
        let line = lines.next().expect("it goes on for a minute");
        count += line["count"].as_u64().expect("a number");
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    let report = lines.last().expect("a report");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    assert_eq!(report["interrupted"], true);
    assert!(report["count"].as_u64() >= Some(count), "{report}");
    assert!(report["seconds"].as_f64() < Some(30.0));
}

#[test]
fn wrong_usage_is_exit_code_2() {
    for args in [
        &["load"][..],
        &[
            "load",
            "--memcached",
            "127.0.0.1:1",
            "--http",
            "http://127.0.0.1/",
        ],
        &["load", "--memcached", "127.0.0.1:1", "--rate", "0"],
        &["load", "--memcached", "127.0.0.1:1", "--duration", "10"],
        &["load", "--memcached", "127.0.0.1:1", "--set-ratio", "2"],
        &["load", "--redis", "127.0.0.1:1", "--fresh", "--depth", "2"],
        &["timers", "--cpu", "0", "--period", "1us"],
        &["packets", "--cpu", "0", "--sender-cpu", "0"],
        &["quota", "--quota-us", "1000"],
    ] {
        let output = lab(args).output().expect("the lab was built");
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
    }
}

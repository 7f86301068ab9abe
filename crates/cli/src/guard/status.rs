//! `tailscope guard status`: what a running guard says of itself.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use super::args::Status;
use crate::failure::Failure;
use crate::streams::{print, print_json};
use crate::units::count;

const LIMIT: Duration = Duration::from_secs(2);
/// More than a guard of 64 replicas says.
const MOST_BYTES: u64 = 1 << 20;

/// Asks, and prints the answer.
pub fn run(args: &Status) -> Result<ExitCode> {
    let status = ask(args.address).map_err(|why| {
        Failure::machine(format!(
            "no guard answers at {}: {why}; name the address that its --admin has",
            args.address
        ))
    })?;
    if args.json {
        print_json(&status)?;
    } else {
        print(&text(&status))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn ask(address: SocketAddr) -> Result<Value, String> {
    let words = |e: std::io::Error| e.to_string();
    let mut stream = TcpStream::connect_timeout(&address, LIMIT).map_err(words)?;
    stream.set_read_timeout(Some(LIMIT)).map_err(words)?;
    stream.set_write_timeout(Some(LIMIT)).map_err(words)?;
    write!(stream, "GET /status HTTP/1.0\r\n\r\n").map_err(words)?;
    let mut answer = Vec::new();
    stream
        .take(MOST_BYTES)
        .read_to_end(&mut answer)
        .map_err(words)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    if head.split(' ').nth(1) != Some("200") {
        return Err("it does not speak HTTP, or is another program".into());
    }
    match serde_json::from_str::<Value>(body) {
        Ok(status) if status["kind"] == "guard" => Ok(status),
        _ => Err("it is another program".into()),
    }
}

fn text(status: &Value) -> String {
    let mut text = String::new();
    if status["dry_run"] == true {
        text += "dry run: nothing is steered or hedged\n";
    }
    text += &format!(
        "{:<22} {:<8} {:>11} {:>12} {:>8}  hazards\n",
        "replica", "signals", "outstanding", "requests", "errors"
    );
    for replica in list(&status["replicas"]) {
        let mut hazards: Vec<&str> = list(&replica["hazards"])
            .filter_map(Value::as_str)
            .collect();
        if replica["down"] == true {
            hazards.push("refuses connections");
        }
        text += &format!(
            "{:<22} {:<8} {:>11} {:>12} {:>8}  {}\n",
            word(&replica["address"]),
            word(&replica["signals"]),
            number(&replica["outstanding"]),
            number(&replica["requests"]),
            number(&replica["errors"]),
            if hazards.is_empty() {
                "-".to_owned()
            } else {
                hazards.join(", ")
            },
        );
    }
    text.push('\n');
    for (name, value) in status["counts"].as_object().into_iter().flatten() {
        let is_main = ["connections", "requests"].contains(&name.as_str());
        if is_main || value.as_u64() != Some(0) {
            text += &format!("{:<24} {:>12}\n", name.replace('_', " "), number(value));
        }
    }
    for (trigger, value) in status["hedges"].as_object().into_iter().flatten() {
        if value.as_u64() != Some(0) {
            text += &format!(
                "{:<24} {:>12}\n",
                format!("hedges by {trigger}"),
                number(value)
            );
        }
    }
    text
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

fn number(value: &Value) -> String {
    value.as_u64().map_or_else(|| "?".into(), count)
}

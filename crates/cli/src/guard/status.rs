//! `tailscope guard status`: what a running guard says of itself.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;
use tailscope_guard::ask_for_status;

use super::args::Status;
use crate::failure::Failure;
use crate::streams::{print, print_json};
use crate::units::{count, time};

const LIMIT: Duration = Duration::from_secs(2);
/// More than a guard of 64 replicas says.
const MOST_BYTES: u64 = 1 << 20;
/// Hedges that are shown.
const LATEST: usize = 8;

/// Asks, and prints the answer.
pub fn run(args: &Status) -> Result<ExitCode> {
    let status = match &args.place {
        Some(place) => at(place)?,
        None => only_one()?,
    };
    if args.json {
        print_json(&status)?;
    } else {
        print(&text(&status))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The status of the guard at this control socket or address.
fn at(place: &str) -> Result<Value> {
    let found = match place.parse::<SocketAddr>() {
        Ok(address) => ask(address),
        Err(_) => ask_socket(Path::new(place)),
    };
    found.map_err(|why| {
        Failure::machine(format!(
            "no guard answers at {place}: {why}; name its control socket, or its --admin address"
        ))
    })
}

/// The status of the only guard that runs.
fn only_one() -> Result<Value> {
    let answered = |path: PathBuf| Some((ask_socket(&path).ok()?, path));
    let mut all: Vec<(Value, PathBuf)> = super::control::known()
        .into_iter()
        .filter_map(answered)
        .collect();
    match all.len() {
        0 => at(super::ADMIN),
        1 => Ok(all.remove(0).0),
        _ => {
            let paths: Vec<String> = all.iter().map(|one| one.1.display().to_string()).collect();
            Err(Failure::usage(format!(
                "several guards run; name one of these: {}",
                paths.join(" ")
            )))
        }
    }
}

fn ask_socket(path: &Path) -> Result<Value, String> {
    parse(&ask_for_status(path).map_err(|e| e.to_string())?)
}

fn parse(text: &str) -> Result<Value, String> {
    match serde_json::from_str::<Value>(text) {
        Ok(status) if status["kind"] == "guard" => Ok(status),
        _ => Err("it is another program".into()),
    }
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
    parse(body)
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
        if replica["silent"] == true {
            hazards.push("silent");
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
    for replica in list(&status["replicas"]) {
        if let Some(source) = replica["signals_from"].as_str() {
            text += &format!("{} is reported by {source}\n", word(&replica["address"]));
        }
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
    text += &budget(status);
    text + &latest(status)
}

/// How much of the budget is used, and what the hedges saved.
fn budget(status: &Value) -> String {
    let window = &status["window"];
    let share = |part: f64, whole: f64| 100.0 * part / whole.max(1.0);
    let (requests, hedges) = (float(&window["requests"]), float(&window["hedges"]));
    let mut text = format!(
        "\nbudget: {} of {} requests within {} s were hedged ({:.2} %), at most {} % may be\n",
        number(&window["hedges"]),
        number(&window["requests"]),
        number(&window["seconds"]),
        share(hedges, requests),
        100.0 * float(&status["budget"]),
    );
    let counts = &status["counts"];
    let followed = float(&counts["losers_followed"]);
    if followed > 0.0 {
        text += &format!(
            "saved: {} a hedge, the mean of {} whose loser was followed to its end\n",
            time((1000.0 * float(&counts["saved_us"]) / followed) as u64),
            number(&counts["losers_followed"]),
        );
    }
    text
}

/// The latest hedges, each with its reason and its effect.
fn latest(status: &Value) -> String {
    let all: Vec<&Value> = list(&status["latest_hedges"]).collect();
    if all.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "\n{:<11} {:<21} {:<21} {:>10} {:>10} {:>10}  first\n",
        "hedged for", "from", "to", "after", "answered", "saved"
    );
    for hedge in all.iter().rev().take(LATEST) {
        let us = |name: &str| {
            hedge[name]
                .as_u64()
                .map_or("-".into(), |us| time(1000 * us))
        };
        text += &format!(
            "{:<11} {:<21} {:<21} {:>10} {:>10} {:>10}  {}\n",
            word(&hedge["trigger"]),
            word(&hedge["from"]),
            hedge["to"].as_str().unwrap_or("-"),
            us("waited_us"),
            us("latency_us"),
            us("saved_us"),
            if hedge["won"] == true {
                "the extra"
            } else {
                "the original"
            },
        );
    }
    text
}

fn float(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
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

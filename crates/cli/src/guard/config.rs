//! The configuration file of `tailscope guard`: the same settings as its options.

use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Deserializer, de};
use tailscope_record::quantity::{parse_duration, parse_percentile};

use super::args::{Guard, Protocol, SendProxy, parse_share};
use crate::failure::Failure;

/// Nobody writes a longer one.
const MOST_BYTES: u64 = 1 << 20;

/// The file. What it does not name is as without it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    listen: Vec<SocketAddr>,
    replica: Vec<Replica>,
    proxy_protocol: Option<bool>,
    send_proxy: Option<SendProxy>,
    tls: Option<Tls>,
    replica_protocol: Option<Protocol>,
    replica_tls: Option<ReplicaTls>,
    #[serde(default, deserialize_with = "share")]
    budget: Option<f64>,
    #[serde(default, deserialize_with = "percentile")]
    hedge_at: Option<f64>,
    concurrency: Option<usize>,
    #[serde(default, deserialize_with = "duration")]
    timeout: Option<Duration>,
    drain_gc: Option<bool>,
    warm_up: Option<bool>,
    dry_run: Option<bool>,
    admin: Option<String>,
    threads: Option<u16>,
    health: Option<String>,
    control: Option<PathBuf>,
    #[serde(default)]
    hazards_from: Vec<SocketAddr>,
    hazards_key: Option<PathBuf>,
    #[serde(default, deserialize_with = "duration")]
    grace: Option<Duration>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Replica {
    address: SocketAddr,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tls {
    cert: PathBuf,
    key: PathBuf,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplicaTls {
    ca: PathBuf,
    name: Option<String>,
}

fn text<'de, D: Deserializer<'de>, T>(
    from: D,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, D::Error> {
    let text = String::deserialize(from)?;
    parse(&text).map(Some).map_err(de::Error::custom)
}

fn share<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    text(from, parse_share)
}

fn percentile<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    text(from, parse_percentile)
}

fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    text(from, parse_duration)
}

/// Takes what the file says in place of the options.
///
/// # Errors
/// If it can't be read or is not right, with the line.
pub fn apply(path: &Path, args: &mut Guard) -> Result<()> {
    let bad = |why: String| Failure::usage(format!("{}: {}", path.display(), why.trim_end()));
    let mut words = String::new();
    File::open(path)
        .and_then(|file| file.take(MOST_BYTES).read_to_string(&mut words))
        .map_err(|e| Failure::usage(format!("can't read {}: {e}", path.display())))?;
    let settings: Settings = toml::from_str(&words).map_err(|e| bad(e.to_string()))?;
    args.listen = settings.listen;
    args.replicas = settings.replica.iter().map(|one| one.address).collect();
    if let Some(tls) = settings.tls {
        (args.tls_cert, args.tls_key) = (Some(tls.cert), Some(tls.key));
    }
    if let Some(tls) = settings.replica_tls {
        (args.replica_ca, args.replica_name) = (Some(tls.ca), tls.name);
    }
    let threads = settings.threads.unwrap_or(args.threads);
    if !(1..=1024).contains(&threads) {
        return Err(bad(format!("threads = {threads} is not in 1..=1024")));
    }
    args.threads = threads;
    args.replica_protocol = settings.replica_protocol.unwrap_or(args.replica_protocol);
    args.proxy_protocol = settings.proxy_protocol.unwrap_or(args.proxy_protocol);
    args.send_proxy = settings.send_proxy.or(args.send_proxy);
    args.budget = settings.budget.unwrap_or(args.budget);
    args.hedge_at = settings.hedge_at.unwrap_or(args.hedge_at);
    args.concurrency = settings.concurrency.unwrap_or(args.concurrency);
    args.timeout = settings.timeout.unwrap_or(args.timeout);
    args.drain_gc = settings.drain_gc.unwrap_or(args.drain_gc);
    args.warm_up = settings.warm_up.unwrap_or(args.warm_up);
    args.dry_run = settings.dry_run.unwrap_or(args.dry_run);
    args.health = settings.health.or(args.health.take());
    args.control = settings.control.or(args.control.take());
    if !settings.hazards_from.is_empty() {
        args.hazards_from = settings.hazards_from;
    }
    args.hazards_key = settings.hazards_key.or(args.hazards_key.take());
    args.grace = settings.grace.unwrap_or(args.grace);
    if let Some(admin) = settings.admin {
        args.admin = admin;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Only {
        #[command(flatten)]
        guard: Guard,
    }

    fn applied(text: &str) -> Result<Guard, String> {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(text.as_bytes()).expect("written");
        let mut guard = Only::parse_from(["guard", "--quiet"]).guard;
        apply(file.path(), &mut guard).map_err(|e| e.to_string())?;
        Ok(guard)
    }

    #[test]
    fn a_file_says_what_the_options_say() {
        let text = "listen = ['127.0.0.1:80']\nbudget = '2%'\nhedge_at = 'p99'\ntimeout = '2s'\n\
                    send_proxy = 'v2'\nhealth = '/ready'\ngrace = '3s'\ncontrol = '/run/c'\n\
                    replica_tls = { ca = 'c', name = 'd' }\n\
                    hazards_from = ['10.0.0.2:9747']\nhazards_key = 'e'\n[tls]\ncert = 'a'\nkey = 'b'\n\
                    [[replica]]\naddress = '127.0.0.1:81'\n[[replica]]\naddress = '[::1]:82'\n";
        let guard = applied(text).expect("it is right");
        assert_eq!(guard.replicas.len(), 2);
        assert_eq!((guard.budget, guard.hedge_at), (0.02, 0.99));
        assert_eq!(guard.timeout, Duration::from_secs(2));
        assert_eq!(guard.health.as_deref(), Some("/ready"));
        assert_eq!(guard.send_proxy, Some(SendProxy::V2));
        assert_eq!(guard.threads, 1);
        assert_eq!(guard.tls_key, Some(PathBuf::from("b")));
        assert_eq!(
            (guard.hazards_from.len(), guard.hazards_key.is_some()),
            (1, true)
        );
        assert_eq!(guard.replica_name.as_deref(), Some("d"));
        assert_eq!(guard.grace, Duration::from_secs(3));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let right = "listen = ['127.0.0.1:80']\nreplica = []\n";
        for (more, words) in [
            ("budget = '200%'", "between 0%"),
            ("budgt = '1%'", "budgt"),
            ("hedge_at = 'p100'", "p100"),
            ("timeout = 5", "expected a string"),
            ("send_proxy = 'v3'", "v3"),
            ("threads = 0", "threads = 0"),
            ("tls = { cert = 'a' }", "key"),
        ] {
            let why = applied(&format!("{right}{more}\n")).expect_err(more);
            assert!(why.contains(words), "{why}");
            assert!(
                why.contains("line 3") || more.starts_with("threads"),
                "{why}"
            );
        }
        assert!(applied("").expect_err("nothing").contains("listen"));
    }
}

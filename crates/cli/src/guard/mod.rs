//! `tailscope guard`.

mod args;
mod config;
mod hazards;
mod status;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::Result;
use tailscope_guard::{Board, Certificate, Coverage, Options, StartError, Target, Watcher};
use tailscope_kernel::hazard::SLOTS;

pub use args::Guard;
use args::{GuardCommand, Protocol};

use crate::failure::Failure;
use crate::streams::{print, say};
use crate::subject::stop_on_signals;

/// Where metrics and the status are, unless --admin says otherwise.
pub const ADMIN: &str = "127.0.0.1:9746";
/// Between two looks at whether it is to end.
const LOOK: Duration = Duration::from_millis(50);

/// Does what the arguments say.
pub fn run(args: &Guard) -> Result<ExitCode> {
    match &args.with {
        Some(GuardCommand::Hazards(hazards)) => hazards::run(hazards),
        Some(GuardCommand::Status(status)) => status::run(status),
        None => {
            let mut args = args.clone();
            if let Some(file) = args.config.clone() {
                config::apply(&file, &mut args)?;
            }
            serve(&args)
        }
    }
}

fn serve(args: &Guard) -> Result<ExitCode> {
    let options = options(args)?;
    if args.check {
        if let Some(files) = &options.tls {
            files.check().map_err(Failure::usage)?;
        }
        print("the settings are valid\n")?;
        return Ok(ExitCode::SUCCESS);
    }
    let stop = stop_on_signals()?;
    tailscope_guard::raise_descriptors();
    let targets = options.replicas.iter().copied().map(Target::Address);
    let say_it = Box::new(|text: &str| say!("tailscope: {text}"));
    let (watcher, board) = Watcher::start(targets.collect(), say_it, |_, _| {})
        .map_err(|e| Failure::machine(format!("can't watch the replicas: {e}")))?;
    let guard =
        tailscope_guard::Guard::start(&options, board.clone()).map_err(|error| match error {
            StartError::Tls(e) => Failure::usage(e),
            e => Failure::machine(e),
        })?;
    introduce(args, &options, &watcher, &board, &guard);
    while !stop.load(Relaxed) {
        std::thread::sleep(LOOK);
    }
    guard.stop();
    Ok(ExitCode::SUCCESS)
}

fn options(args: &Guard) -> Result<Options> {
    if args.listen.is_empty() {
        return Err(Failure::usage(
            "nowhere to accept clients; add --listen 127.0.0.1:8080",
        ));
    }
    if args.replicas.is_empty() {
        return Err(Failure::usage(
            "no server to forward to; add --replica 127.0.0.1:8081 for each of them",
        ));
    }
    if args.replicas.len() > SLOTS as usize {
        return Err(Failure::usage(format!(
            "{} replicas are too many; name at most {SLOTS}",
            args.replicas.len()
        )));
    }
    for (i, replica) in args.replicas.iter().enumerate() {
        if args.replicas[..i].contains(replica) {
            return Err(Failure::usage(format!(
                "the replica {replica} is named twice; name each once"
            )));
        }
        if args.listen.contains(replica) {
            return Err(Failure::usage(format!(
                "guard would forward requests to itself: {replica} is both --listen and --replica"
            )));
        }
    }
    let admin = match args.admin.as_str() {
        "none" => None,
        address => Some(address.parse::<SocketAddr>().map_err(|_| {
            Failure::usage(format!(
                "--admin {address} is not an address; write {ADMIN}, or none"
            ))
        })?),
    };
    Ok(Options {
        listen: args.listen.clone(),
        proxy_protocol: args.proxy_protocol,
        tls: args
            .tls_cert
            .clone()
            .zip(args.tls_key.clone())
            .map(|(chain, key)| Certificate { chain, key }),
        replicas: args.replicas.clone(),
        replicas_speak_2: args.replica_protocol == Protocol::Http2,
        budget: args.budget,
        quantile: args.hedge_at,
        health: health(args)?,
        concurrency: args.concurrency,
        timeout: args.timeout,
        dry_run: args.dry_run,
        admin,
        threads: args.threads.into(),
    })
}

/// The path of the health checks.
fn health(args: &Guard) -> Result<Option<String>> {
    let Some(path) = &args.health else {
        return Ok(None);
    };
    let is_path = path.starts_with('/') && path.bytes().all(|b| b.is_ascii_graphic() && b != b'#');
    if !is_path {
        return Err(Failure::usage(format!(
            "--health {path} is not a path; write /healthz"
        )));
    }
    Ok(Some(path.clone()))
}

/// Says first what can't be known.
fn introduce(
    args: &Guard,
    options: &Options,
    watcher: &Watcher,
    board: &Board,
    guard: &tailscope_guard::Guard,
) {
    if let Some(why) = watcher.refused() {
        say!("tailscope: {why}");
        say!(
            "tailscope: so hazards of the replicas are not seen; slow requests are sent once more \
             at p{}",
            args.hedge_at * 100.0
        );
    }
    if options.replicas.len() == 1 {
        say!("tailscope: with one replica there is nowhere to steer to; add --replica");
    }
    for (i, replica) in options.replicas.iter().enumerate() {
        let coverage = board.coverage(i);
        let what = match coverage {
            Coverage::None => "no process of this machine listens there: no signals".to_owned(),
            known => format!(
                "process {}: {}",
                pids(&board.pids(i)),
                hazards::words(known)
            ),
        };
        if !args.quiet || coverage == Coverage::None {
            say!("replica {replica}: {what}");
        }
    }
    if !args.quiet {
        let addresses: Vec<String> = guard
            .addresses()
            .iter()
            .map(SocketAddr::to_string)
            .collect();
        let mode = if options.dry_run { " (dry run)" } else { "" };
        say!("listening on {}{mode}", addresses.join(", "));
        if let Some(admin) = guard.admin() {
            say!("metrics at http://{admin}/metrics");
        }
    }
}

fn pids(pids: &[u32]) -> String {
    let all: Vec<String> = pids.iter().map(u32::to_string).collect();
    all.join(", ")
}

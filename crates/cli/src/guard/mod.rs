//! `tailscope guard`.

mod args;
mod config;
mod control;
mod hazards;
mod status;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::{Error, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tailscope_guard::{
    Board, Certificate, Coverage, Inherited, Key, Options, ProxyHeader, Source, StartError,
    Subject, Target, Trust, Watcher,
};
use tailscope_kernel::hazard::SLOTS;

pub use args::Guard;
use args::{GuardCommand, Protocol, SendProxy};

use crate::failure::Failure;
use crate::streams::{print, say};

/// Where metrics and the status are, unless --admin says otherwise.
pub const ADMIN: &str = "127.0.0.1:9746";
/// Between two looks at whether it is to end.
const LOOK: Duration = Duration::from_millis(50);

/// Does what the arguments say.
pub fn run(args: &Guard) -> Result<ExitCode> {
    match &args.with {
        Some(GuardCommand::Hazards(hazards)) => hazards::run(hazards),
        Some(GuardCommand::Status(status)) => status::run(status),
        None => serve(args),
    }
}

/// The arguments with the file's settings in their place, and what they mean.
fn settings(given: &Guard) -> Result<(Guard, Options)> {
    let mut args = given.clone();
    if let Some(file) = &given.config {
        config::apply(file, &mut args)?;
    }
    let options = options(&args)?;
    Ok((args, options))
}

fn serve(given: &Guard) -> Result<ExitCode> {
    let (args, options) = settings(given)?;
    if args.check {
        options.check_files().map_err(Failure::usage)?;
        sources(&args)?;
        print("the settings are valid\n")?;
        return Ok(ExitCode::SUCCESS);
    }
    let (stop, reload) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    for (signal, flag) in [(SIGINT, &stop), (SIGTERM, &stop), (SIGHUP, &reload)] {
        signal_hook::flag::register(signal, Arc::clone(flag))?;
    }
    tailscope_guard::raise_descriptors();
    let mut inherited = if args.take_over {
        control::take_over(&args)?
    } else {
        Inherited::default()
    };
    let targets = options.replicas.iter().copied().map(Target::Address);
    let subject = Subject {
        targets: targets.collect(),
        drains: args.drain_gc && !args.dry_run,
        sources: sources(&args)?,
    };
    let say_it = Box::new(|text: &str| say!("tailscope: {text}"));
    let (watcher, board) = Watcher::start(subject, say_it, |_, _| {})
        .map_err(|e| Failure::machine(format!("can't watch the replicas: {e}")))?;
    let control = control::prepare(&args)?; // before the capabilities are dropped
    let mut guard = tailscope_guard::Guard::start(&options, board.clone(), &mut inherited)
        .map_err(start_failure)?;
    let control = control::open(&args, control, &mut guard, &mut inherited)?;
    drop(inherited); // sockets of addresses that this one has not
    introduce(&args, &options, &watcher, &board, &guard);
    if !args.quiet
        && let Some(path) = control
    {
        say!("control socket {}", path.display());
    }
    tailscope_agent::notify("READY=1");
    while !stop.load(Relaxed) && !guard.is_handed_over() {
        if reload.swap(false, Relaxed) {
            match again(given, &mut guard, &watcher) {
                Ok(()) => say!("tailscope: the new settings hold"),
                Err(e) => say!("tailscope: the old settings stay: {e:#}"),
            }
        }
        std::thread::sleep(LOOK);
    }
    if guard.is_handed_over() {
        say!("tailscope: another guard has taken over; open requests finish");
    }
    tailscope_agent::notify("STOPPING=1");
    guard.stop();
    Ok(ExitCode::SUCCESS)
}

fn start_failure(error: StartError) -> Error {
    match error {
        StartError::Tls(e) => Failure::usage(e),
        e => Failure::machine(e),
    }
}

/// Reads the settings again, and has them hold.
fn again(given: &Guard, guard: &mut tailscope_guard::Guard, watcher: &Watcher) -> Result<()> {
    let (_, options) = settings(given)?;
    let setup = guard.prepare(&options).map_err(start_failure)?;
    // First, so that no request goes to a replica of which the hazards are not known yet.
    watcher.watch(guard.targets(&setup));
    guard.adopt(setup);
    Ok(())
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
        send_proxy: args.send_proxy.map(|version| match version {
            SendProxy::V1 => ProxyHeader::V1,
            SendProxy::V2 => ProxyHeader::V2,
        }),
        tls: args
            .tls_cert
            .clone()
            .zip(args.tls_key.clone())
            .map(|(chain, key)| Certificate { chain, key }),
        replicas: args.replicas.clone(),
        replicas_speak_2: args.replica_protocol == Protocol::Http2,
        replica_tls: args.replica_ca.clone().map(|roots| Trust {
            roots,
            name: args.replica_name.clone(),
        }),
        budget: args.budget,
        quantile: args.hedge_at,
        health: health(args)?,
        concurrency: args.concurrency,
        timeout: args.timeout,
        dry_run: args.dry_run,
        warm_up: args.warm_up && !args.dry_run,
        admin,
        threads: args.threads.into(),
        grace: args.grace,
    })
}

/// The publishers that are asked for hazards.
fn sources(args: &Guard) -> Result<Vec<Source>> {
    let Some(file) = args.hazards_key.as_deref() else {
        return match args.hazards_from.first() {
            None => Ok(Vec::new()),
            Some(_) => Err(Failure::usage(
                "hazards from another process need its key; name the file with --hazards-key",
            )),
        };
    };
    let key = Key::read(file).map_err(Failure::usage)?;
    let source = |address: &SocketAddr| Source::new(*address, key.clone());
    Ok(args.hazards_from.iter().map(source).collect())
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
    // Where others report the hazards, it need not see them.
    if let Some(why) = watcher.refused()
        && args.hazards_from.is_empty()
    {
        say!("tailscope: {why}");
        say!(
            "tailscope: so hazards of replicas here are not seen; slow requests to them are sent once \
             more at p{}",
            args.hedge_at * 100.0
        );
    }
    for source in watcher.silent() {
        say!(
            "tailscope: no answer from {source}; does `tailscope guard hazards --serve {source}` run \
             there, with the same key?"
        );
    }
    if options.replicas.len() == 1 {
        say!("tailscope: with one replica there is nowhere to steer to; add --replica");
    }
    for (i, replica) in options.replicas.iter().enumerate() {
        let coverage = board.coverage(i);
        let what = match coverage {
            Coverage::None if args.hazards_from.is_empty() => {
                "no process of this machine listens there: no signals".to_owned()
            }
            Coverage::None => "nobody reports its hazards: no signals".to_owned(),
            known if let Some(source) = board.source(i) => {
                format!("{} (reported by {source})", hazards::words(known))
            }
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

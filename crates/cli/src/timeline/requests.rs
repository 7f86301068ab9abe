//! `tailscope timeline requests`: the slow requests of many windows as one list.

use std::collections::HashSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args as ClapArgs, ValueEnum};
use serde::Serialize;
use tailscope_record::quantity::parse_nanos;
use tailscope_timeline::{Cause, Kind, Stories, Trace, analyze, ms};
use tailscope_trace::utc;

use crate::failure::Failure;
use crate::streams::{print_json_line, print_laid_out, say};

/// List the slow requests of many windows, the slowest first.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  tailscope timeline requests windows                   all windows of a folder
  tailscope timeline requests windows --name cpuhog     those with this word in their sentence
  tailscope timeline requests windows --cause page_fault --sort time
  tailscope timeline requests windows --json | jq .sentence

The number behind the window is the request's number in `timeline story` with the same --slower.")]
pub struct ListRequests {
    /// Windows that `tailscope timeline` wrote, or folders of them
    #[arg(required = true, value_name = "WINDOW|FOLDER")]
    pub windows: Vec<PathBuf>,

    /// List requests that took at least this time [default: as --slow of the recording]
    #[arg(long, value_name = "TIME", value_parser = parse_nanos)]
    pub slower: Option<u64>,

    /// List only requests whose longest gap is of this kind: waiting_for_cpu, blocked, page_fault
    #[arg(long, value_name = "KIND", value_parser = parse_kind)]
    pub cause: Option<Kind>,

    /// List only requests with this text in their sentence, thread or span
    #[arg(long, value_name = "TEXT")]
    pub name: Option<String>,

    /// The order of the list
    #[arg(long, value_name = "ORDER", value_enum, default_value_t = Sort::Latency)]
    pub sort: Sort,

    /// List this many requests, the slowest ones
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 50)]
    pub count: usize,

    /// Print one JSON object a line for each request; times in ns
    #[arg(long)]
    pub json: bool,
}

fn parse_kind(text: &str) -> Result<Kind, String> {
    serde_json::from_value(text.into()).map_err(|e| e.to_string())
}

/// In which order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// The slowest first
    Latency,
    /// The oldest first
    Time,
}

/// One request of the list.
#[derive(Debug, Serialize)]
struct Row {
    window: String,
    /// In `timeline story`, from 1.
    number: usize,
    latency_ns: u64,
    begin_ns: u64,
    begin_unix_ns: i64,
    thread: String,
    tid: u32,
    span: Option<String>,
    sentence: String,
    causes: Vec<Cause>,
}

/// What the windows have together.
#[derive(Debug, Default)]
struct Listed {
    windows: usize,
    rows: Vec<Row>,
    /// When each began, and its thread: a request can be in several windows.
    known: HashSet<(u64, u32)>,
}

/// Lists them.
pub fn run(args: &ListRequests) -> Result<ExitCode> {
    let mut listed = Listed::default();
    // A filter may leave any of them out.
    let is_filtered = args.cause.is_some() || args.name.is_some();
    let most = if is_filtered { usize::MAX } else { args.count };
    for Window { path, is_named } in windows(&args.windows)? {
        let trace = match super::open(&path) {
            Err(e) if !is_named => {
                say!("tailscope: left out: {e}");
                continue;
            }
            opened => opened?,
        };
        listed.windows += 1;
        listed.add(&path, &trace, analyze(&trace, args.slower, most), args);
    }
    if args.sort == Sort::Time {
        listed.rows.sort_by_key(|row| row.begin_unix_ns);
    }
    if args.json {
        for row in &listed.rows {
            print_json_line(row)?;
        }
    } else {
        print_laid_out(&text(&listed))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A window, and whether the user named it: else it is one of a folder.
struct Window {
    path: PathBuf,
    is_named: bool,
}

/// All windows that are named, and those of the folders that are.
fn windows(named: &[PathBuf]) -> Result<Vec<Window>> {
    let mut found = Vec::new();
    for path in named {
        if !path.is_dir() {
            found.push(Window {
                path: path.clone(),
                is_named: true,
            });
            continue;
        }
        let failed = |e| Failure::usage(format!("can't read {}: {e}", path.display()));
        let mut of_folder = Vec::new();
        for entry in fs::read_dir(path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let is_file = entry.file_type().is_ok_and(|of| of.is_file());
            let path = entry.path();
            if is_file && path.extension().is_some_and(|of| of == "timeline") {
                of_folder.push(path);
            }
        }
        if of_folder.is_empty() {
            say!("tailscope: {} has no window", path.display());
        }
        of_folder.sort();
        let of_folder = of_folder.into_iter();
        found.extend(of_folder.map(|path| Window {
            path,
            is_named: false,
        }));
    }
    Ok(found)
}

impl Listed {
    /// Takes the requests of a window that are wanted, and keeps the slowest of all.
    fn add(&mut self, window: &Path, trace: &Trace, told: Stories, args: &ListRequests) {
        let rows = (1..).zip(told.stories).map(|(number, story)| Row {
            window: window.display().to_string(),
            number,
            latency_ns: story.latency_ns,
            begin_ns: story.begin_ns,
            begin_unix_ns: trace
                .about
                .unix_offset_ns
                .saturating_add_unsigned(story.begin_ns),
            thread: story.thread,
            tid: story.tid,
            span: story.span,
            sentence: story.sentence,
            causes: story.causes,
        });
        let known = &mut self.known;
        let is_new = |row: &Row| known.insert((row.begin_ns, row.tid));
        self.rows
            .extend(rows.filter(|row| row.is_wanted(args)).filter(is_new));
        self.rows
            .sort_by_key(|row| std::cmp::Reverse(row.latency_ns));
        self.rows.truncate(args.count);
    }
}

impl Row {
    fn is_wanted(&self, args: &ListRequests) -> bool {
        let leads = self.causes.first().map(|cause| cause.kind);
        let has = |text: &String| {
            let span = self.span.as_deref().unwrap_or_default();
            [&self.sentence, &self.thread, span]
                .iter()
                .any(|of| of.contains(text.as_str()))
        };
        (args.cause.is_none() || args.cause == leads) && args.name.as_ref().is_none_or(has)
    }
}

fn text(listed: &Listed) -> String {
    let mut text = format!(
        "{} slow requests of {} windows\n",
        listed.rows.len(),
        listed.windows
    );
    for row in &listed.rows {
        let (_, why) = row.sentence.split_once(": ").unwrap_or_default();
        let cause = row
            .causes
            .first()
            .map_or_else(String::new, |cause| ms(cause.ns));
        let _ = writeln!(
            text,
            "\n{}   {} of them {why}\n   {}{}, {}, {} {}",
            ms(row.latency_ns),
            cause,
            row.thread,
            row.span
                .as_ref()
                .map(|span| format!(": {span}"))
                .unwrap_or_default(),
            utc(row.begin_unix_ns),
            row.window,
            row.number,
        );
    }
    text
}

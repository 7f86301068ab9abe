//! A number that grows with a program's work.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::str::FromStr;

use tailscope_cost::command::split;
use tailscope_cost::target::Target;

/// Where the number comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Read and write calls of the program.
    Calls,
    /// Their bytes.
    Bytes,
    /// A number in a file.
    File(PathBuf),
    /// A number that a command prints.
    Command(Vec<String>),
}

impl FromStr for Progress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        match (kind, rest) {
            ("io", "calls") => Ok(Self::Calls),
            ("io", "bytes") => Ok(Self::Bytes),
            ("file", path) if !path.is_empty() => Ok(Self::File(path.into())),
            ("cmd", line) if !line.trim().is_empty() => {
                Ok(Self::Command(split(line).map_err(|e| e.to_string())?))
            }
            _ => Err(format!(
                "'{text}' is no progress; write io:calls, io:bytes, file:PATH or cmd:COMMAND"
            )),
        }
    }
}

impl Progress {
    /// The number now.
    pub fn read(&self, target: &Target) -> Result<f64, String> {
        let io = || {
            target
                .io()
                .ok_or("the kernel shows no /proc/PID/io of this process")
        };
        match self {
            Self::Calls => Ok(io()?.0 as f64),
            Self::Bytes => Ok(io()?.1 as f64),
            Self::File(path) => {
                let text = fs::read_to_string(path);
                number(&text.map_err(|e| format!("{}: {e}", path.display()))?)
            }
            Self::Command(words) => printed(words),
        }
    }
}

fn printed(words: &[String]) -> Result<f64, String> {
    let (program, rest) = words.split_first().ok_or("the command is empty")?;
    let output = Command::new(program)
        .args(rest)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("{program}: {e}"))?;
    if !output.status.success() {
        return Err(format!("{program} failed ({})", output.status));
    }
    number(&String::from_utf8_lossy(&output.stdout))
}

/// The first word, which is a number.
fn number(text: &str) -> Result<f64, String> {
    let word = text.split_whitespace().next().unwrap_or_default();
    let number = word.parse::<f64>().ok().filter(|number| number.is_finite());
    number.ok_or_else(|| {
        format!(
            "'{}' is not a number",
            word.chars().take(40).collect::<String>()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_progress_is_read_and_others_are_refused() {
        assert_eq!("io:calls".parse(), Ok(Progress::Calls));
        let command = "cmd:echo '41 x'".parse::<Progress>().expect("it is one");
        let own = Target {
            pids: vec![std::process::id()],
        };
        assert_eq!(command.read(&own), Ok(41.0));
        for text in ["", "io", "io:x", "file:", "cmd:", "cmd:'x", "utime"] {
            assert!(text.parse::<Progress>().is_err(), "{text}");
        }
        for line in [
            "cmd:echo x",
            "cmd:false",
            "cmd:/no/such/tool",
            "file:/no/such/file",
        ] {
            let progress = line.parse::<Progress>().expect("it is one");
            assert!(progress.read(&own).is_err(), "{line}");
        }
    }
}

//! Which machine figures belong to: a cost that was measured elsewhere is a wrong one.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Settings that costs depend on, below `/proc/sys`.
const SETTINGS: &[&str] = &[
    "kernel/perf_event_max_sample_rate",
    "kernel/perf_cpu_time_max_percent",
    "kernel/perf_event_max_stack",
    "kernel/bpf_stats_enabled",
    "net/core/bpf_jit_enable",
    "net/core/bpf_jit_harden",
];

/// What a cost depends on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The CPU's name, family, model, stepping and microcode.
    pub cpu: String,
    /// How many CPUs are there.
    pub cpus: usize,
    /// Release and build of the kernel.
    pub kernel: String,
    /// The hypervisor: what the firmware says of itself, or `none`.
    pub hypervisor: String,
    /// What the kernel does against each weakness of the CPU.
    pub mitigations: BTreeMap<String, String>,
    /// Settings of the kernel that costs depend on.
    pub settings: BTreeMap<String, String>,
}

fn text(path: impl AsRef<Path>) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

impl Identity {
    /// This machine's.
    #[must_use]
    pub fn here() -> Self {
        let info = text("/proc/cpuinfo").unwrap_or_default();
        let about = rustix::system::uname();
        let words = [about.machine(), about.release(), about.version()];
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        Self {
            cpu: cpu(&info),
            cpus: info
                .lines()
                .filter(|line| line.starts_with("processor"))
                .count(),
            kernel: words.join(" "),
            hypervisor: hypervisor(&info),
            mitigations: folder("/sys/devices/system/cpu/vulnerabilities"),
            settings: settings(),
        }
    }

    /// In what two machines differ, in words; nothing if they are alike.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut found = Vec::new();
        let mut compare = |what: &str, here: &str, there: &str| {
            if here != there {
                found.push(format!("{what}: {here} here, {there} there"));
            }
        };
        compare("CPU", &self.cpu, &other.cpu);
        compare("CPUs", &self.cpus.to_string(), &other.cpus.to_string());
        compare("kernel", &self.kernel, &other.kernel);
        compare("hypervisor", &self.hypervisor, &other.hypervisor);
        for (kind, here, there) in [
            ("mitigation of", &self.mitigations, &other.mitigations),
            ("setting", &self.settings, &other.settings),
        ] {
            let mut names: Vec<_> = here.keys().chain(there.keys()).collect();
            names.sort();
            names.dedup();
            for name in names {
                let value = |of: &BTreeMap<String, String>| {
                    of.get(name).cloned().unwrap_or_else(|| "nothing".into())
                };
                compare(&format!("{kind} {name}"), &value(here), &value(there));
            }
        }
        found
    }
}

fn cpu(info: &str) -> String {
    let value = |name: &str| {
        info.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim().to_owned())
        })
    };
    let name = value("model name").unwrap_or_else(|| "unnamed".into());
    let details = [
        "cpu family",
        "model",
        "stepping",
        "microcode",
        // arm64
        "CPU implementer",
        "CPU variant",
        "CPU part",
        "CPU revision",
    ];
    let details = details
        .iter()
        .filter_map(|name| Some(format!("{name} {}", value(name)?)));
    let details: Vec<_> = details.collect();
    format!("{name} ({})", details.join(", "))
}

/// What the firmware calls itself on a virtual machine.
fn hypervisor(info: &str) -> String {
    let flags = info.lines().find(|line| line.starts_with("flags"));
    let is_virtual = flags.is_some_and(|flags| flags.split_whitespace().any(|f| f == "hypervisor"));
    let named = ["sys_vendor", "product_name"]
        .iter()
        .filter_map(|name| text(format!("/sys/class/dmi/id/{name}")));
    let named: Vec<_> = named.chain(text("/sys/hypervisor/type")).collect();
    match (is_virtual, named.is_empty()) {
        (true, true) => "unnamed".into(),
        (true, false) => named.join(" "),
        (false, _) => "none".into(),
    }
}

fn folder(path: &str) -> BTreeMap<String, String> {
    let files = fs::read_dir(path).into_iter().flatten().flatten();
    files
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, text(entry.path())?)))
        .collect()
}

/// The settings now. A run in which one changed is void.
#[must_use]
pub fn settings() -> BTreeMap<String, String> {
    SETTINGS
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), text(format!("/proc/sys/{name}"))?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_like_itself() {
        assert_eq!(
            Identity::here().differences(&Identity::here()),
            Vec::<String>::new()
        );
    }

    #[test]
    fn another_machine_differs_in_what_is_named() {
        let here = Identity::here();
        let mut other = here.clone();
        other.kernel = "6.1".into();
        other
            .mitigations
            .insert("new_one".into(), "Vulnerable".into());
        let found = here.differences(&other);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("kernel: ") && found[1].contains("new_one"));
    }

    #[test]
    fn a_cpu_is_named_with_its_microcode() {
        let info = "processor : 0\nmodel name\t: Some CPU\nstepping\t: 4\nmicrocode\t: 0x1\n\n";
        assert_eq!(cpu(info), "Some CPU (stepping 4, microcode 0x1)");
    }
}

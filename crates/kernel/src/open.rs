//! Reading programs that are to be loaded.

use libbpf_rs::btf::Btf;
use libbpf_rs::{ObjectBuilder, OpenObject, PrintLevel};

use crate::load_error::{LoadError, kernel};
use crate::pid_namespace::{self, PidNamespace, user_namespace_refuses};
use crate::privilege::missing_capabilities;

/// Programs that are not loaded yet, on a machine and for a user that may load them.
pub(crate) struct Opened {
    pub(crate) btf: Btf<'static>,
    pub(crate) object: OpenObject,
    /// How many CPUs there may ever be.
    pub(crate) cpus: usize,
    /// The level of our PID namespace, which the programs know.
    pub(crate) level: u32,
}

/// Makes sure that programs can be loaded here, and that libbpf is quiet.
pub(crate) fn check() -> Result<(), LoadError> {
    quiet();
    if user_namespace_refuses() {
        return Err(LoadError::UserNamespace);
    }
    let missing = missing_capabilities();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(LoadError::Privilege(missing))
    }
}

/// Reads programs, after it has made sure that they can be loaded.
pub(crate) fn open(programs: &'static [u8]) -> Result<Opened, LoadError> {
    check()?;
    let btf = Btf::from_vmlinux().map_err(|_| LoadError::NoBtf)?;
    let namespace = PidNamespace::here()?.config()?;
    let mut object = ObjectBuilder::default()
        .open_memory(programs)
        .map_err(kernel("read the programs"))?;
    pid_namespace::configure(&mut object, &namespace)?;
    Ok(Opened {
        btf,
        object,
        level: namespace.level,
        cpus: libbpf_rs::num_possible_cpus().map_err(kernel("count the CPUs"))?,
    })
}

/// Has libbpf say nothing unless it is asked to.
fn quiet() {
    libbpf_rs::set_print(Some((PrintLevel::Debug, log)));
}

/// libbpf reports much that is no problem, such as a hook that is not there. TAILSCOPE_LIBBPF_LOG=1
/// shows it.
fn log(_: PrintLevel, text: String) {
    if std::env::var_os("TAILSCOPE_LIBBPF_LOG").is_some() {
        eprint!("{text}");
    }
}

//! The mechanisms for requests of unmodified servers.

use libbpf_rs::OpenObject;
use libbpf_rs::btf::{Btf, types};

use crate::select::{autoload, has_tracepoint};
use crate::{Config, Measurement, Mechanisms, SocketSpans};

/// Families of sockets, as the kernel's functions are named after them. A kernel without the first
/// has none of ours.
const FAMILIES: &[&str] = &["inet", "inet6", "unix_stream"];

fn has_function(btf: &Btf<'_>, name: &str) -> bool {
    btf.type_by_name::<types::Func<'_>>(name).is_some()
}

/// Switches on the programs that see requests begin and end. `fentry` is why this kernel refuses
/// to attach programs to its functions, if it does.
pub(crate) fn choose_socket_hooks(
    open: &mut OpenObject,
    btf: &Btf<'_>,
    config: &Config,
    fentry: Option<&str>,
    mechanisms: &mut Mechanisms,
) {
    let wanted = config.sockets.is_some();
    let slices = config.sockets == Some(SocketSpans::Slices);
    let from_ready = slices || config.sockets == Some(SocketSpans::FromReady);
    // Each hook has a program for slices and another for rows.
    let mut choose = |name: &str, use_it: bool| {
        autoload(open, &format!("on_{name}"), use_it && !slices);
        autoload(open, &format!("on_slice_{name}"), use_it && slices);
    };
    let told = has_tracepoint(btf, "sock_recv_length") && has_tracepoint(btf, "sock_send_length");
    let returns = !told && fentry.is_none() && has_function(btf, "inet_recvmsg");
    choose("receive", wanted && told);
    choose("send", wanted && told);
    for family in FAMILIES {
        let there = has_function(btf, &format!("{family}_recvmsg"))
            && has_function(btf, &format!("{family}_sendmsg"));
        let use_it = wanted && returns && there;
        choose(&format!("{family}_receive"), use_it);
        choose(&format!("{family}_send"), use_it);
    }
    let ready_told = has_tracepoint(btf, "sk_data_ready");
    let readable = !ready_told && fentry.is_none() && has_function(btf, "sock_def_readable");
    choose("data_ready", from_ready && ready_told);
    choose("readable", from_ready && readable);
    let connections = wanted && has_tracepoint(btf, "inet_sock_set_state");
    choose("socket_state", connections);
    choose("socket_state_rest", connections);
    for name in ["on_slice_switch", "on_slice_waking", "on_slice_new_thread"] {
        autoload(open, name, slices);
    }
    // Without these, a wait that a timer ends counts as one for sockets.
    let timers = ["entry", "exit"].map(|of| format!("hrtimer_expire_{of}"));
    let timers = timers.iter().all(|name| has_tracepoint(btf, name));
    for name in ["on_timer_entry", "on_timer_exit"] {
        autoload(open, name, slices && timers);
    }

    if wanted {
        let (hook, why) = better_of(
            told.then_some("sock_recv_length, sock_send_length"),
            returns.then_some("fexit of recvmsg and sendmsg: TCP, UDP, Unix streams"),
            "this kernel has no tracepoint sock_recv_length (Linux 6.3)",
            fentry,
        );
        mechanisms.set(Measurement::Sockets, hook, why);
        let (hook, why) = better_of(
            ready_told.then_some("sk_data_ready"),
            readable.then_some("fentry of sock_def_readable"),
            "this kernel has no tracepoint sk_data_ready (Linux 6.4)",
            fentry,
        );
        mechanisms.set(Measurement::Ready, hook, why);
    }
}

/// The better of two hooks, and why it is not the first.
fn better_of(
    first: Option<&'static str>,
    second: Option<&'static str>,
    why_not_first: &str,
    fentry: Option<&str>,
) -> (Option<&'static str>, String) {
    if first.is_some() {
        return (first, String::new());
    }
    let why = match fentry {
        Some(refused) => format!("{why_not_first}; fentry refused: {refused}"),
        None => why_not_first.to_owned(),
    };
    (second, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_hook_needs_no_reason() {
        let chosen = better_of(Some("a"), Some("b"), "no a", None);
        assert_eq!(chosen, (Some("a"), String::new()));
    }

    #[test]
    fn a_lesser_hook_says_why_and_none_says_both() {
        assert_eq!(
            better_of(None, Some("b"), "no a", None),
            (Some("b"), "no a".to_owned())
        );
        assert_eq!(
            better_of(None, None, "no a", Some("not permitted")),
            (None, "no a; fentry refused: not permitted".to_owned())
        );
    }
}

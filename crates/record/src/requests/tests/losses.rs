//! Entries that were lost: requests are missing then, and none is wrong.

use tailscope_signals::slice::{Act, Role, Slice};

use super::{NETWORK, Script, parts};

const RECEIVES: Act = Act::Receive(Role::Server);
const ANSWERS: Act = Act::Send(Role::Server);

impl Script {
    /// An entry of socket 5, before which one of that socket was lost.
    fn after_loss(&mut self, at: u64, act: Act, since: u64) -> &mut Self {
        self.numbers[1] += 1;
        self.entry(at, 1, act, |slice: &mut Slice| {
            (slice.socket, slice.length) = (5, 10);
            slice.since = since * 1000;
            slice.after_loss = true;
        })
    }
}

#[test]
fn a_lost_send_does_not_join_two_requests() {
    let mut script = Script::default();
    script
        .on(110, 1, RECEIVES, 5, 100)
        .after_loss(5000, RECEIVES, 4990)
        .on(5100, 1, ANSWERS, 5, 0)
        .on(9010, 1, RECEIVES, 5, 9000)
        .on(9100, 1, ANSWERS, 5, 0);
    let finished = script.finish();
    assert_eq!(
        finished.iter().map(|f| parts(f)[0]).collect::<Vec<_>>(),
        [100]
    );
    assert_eq!(script.requests.missed.incomplete, 1);
    assert_eq!(script.requests.missed.continued, 0);
}

#[test]
fn a_lost_receive_does_not_lengthen_the_request_before() {
    let mut script = Script::default();
    script
        .on(110, 1, RECEIVES, 5, 100)
        .on(200, 1, ANSWERS, 5, 0)
        .after_loss(5100, ANSWERS, 0)
        .on(9010, 1, RECEIVES, 5, 9000)
        .on(9100, 1, ANSWERS, 5, 0);
    let finished = script.finish();
    assert_eq!(
        finished.iter().map(|f| parts(f)[0]).collect::<Vec<_>>(),
        [100]
    );
    assert_eq!(script.requests.missed.incomplete, 1);
}

#[test]
fn where_entries_of_a_thread_were_lost_its_requests_are_doubtful() {
    let mut script = Script::default();
    script.on(110, 1, RECEIVES, 5, 100);
    script.numbers[1] += 3;
    script.run(800, 1, NETWORK, 700).on(900, 1, ANSWERS, 5, 0);
    let finished = script.finish();
    assert_eq!(parts(&finished[0])[0], 800);
    assert!(finished[0].ambiguous);
}

#[test]
fn a_call_whose_answer_may_be_lost_is_not_taken_for_the_next_one() {
    let mut script = Script::default();
    script
        .on(110, 1, RECEIVES, 5, 100)
        .on(150, 1, Act::Send(Role::Client), 9, 0)
        .entry(5000, 1, Act::Receive(Role::Client), |slice| {
            (slice.socket, slice.length, slice.since) = (9, 10, 4_990_000);
            slice.after_loss = true;
        })
        .on(5100, 1, ANSWERS, 5, 0);
    let finished = script.finish();
    assert_eq!(parts(&finished[0])[2], 0);
    assert!(finished[0].ambiguous);
}

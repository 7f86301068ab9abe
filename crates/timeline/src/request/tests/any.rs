//! What holds for every order of events.

use proptest::prelude::*;

use super::*;

fn any_what() -> impl Strategy<Value = What> {
    let socket = (0u32..3).prop_map(Socket);
    let end = (0u32..200).prop_map(Sequence);
    let stream = proptest::option::of((0u32..200).prop_map(Sequence));
    prop_oneof![
        Just(What::PacketIn { bytes: 1 }),
        Just(What::Leave(OnTop::Softirq(3))),
        (socket.clone(), end.clone(), 0u16..5).prop_map(|(socket, end, bytes)| What::TcpIn {
            socket,
            end,
            acknowledges: Sequence(0),
            bytes
        }),
        socket.clone().prop_map(|socket| What::Ready { socket }),
        (socket.clone(), stream.clone()).prop_map(|(socket, end)| What::Receive {
            socket,
            end,
            bytes: 1,
            connects: false
        }),
        (socket.clone(), stream).prop_map(|(socket, end)| What::Send {
            socket,
            end,
            bytes: 1,
            held: Held::Other
        }),
        (socket.clone(), end.clone()).prop_map(|(socket, end)| What::Taken {
            socket,
            end,
            bytes: 1
        }),
        (socket, end, 0u32..100).prop_map(|(socket, end, since)| What::Transmit {
            socket,
            end,
            bytes: 1,
            since
        }),
    ]
}

proptest! {
    #[test]
    fn whatever_comes_a_requests_moments_are_in_order(
        events in proptest::collection::vec((0u64..100_000, any_what()), 0..300)
    ) {
        let mut at = 0;
        let events: Vec<_> = events
            .into_iter()
            .map(|(later, what)| {
                at += later;
                (at, 7, what)
            })
            .collect();
        for request in all(&events) {
            prop_assert!(request.begin() <= request.received);
            prop_assert!(request.received <= request.end());
            prop_assert!(!request.sends.is_empty());
        }
    }
}

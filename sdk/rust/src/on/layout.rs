//! The layout against the header, as Rust sees that in the recorder.

use std::mem::{align_of, offset_of, size_of};

use tailscope_signals::abi as header;

use super::abi;

macro_rules! same {
    ($ours:ty, $theirs:ty: $($field:ident),+) => {
        assert_eq!(size_of::<$ours>(), size_of::<$theirs>(), stringify!($ours));
        assert_eq!(align_of::<$ours>(), align_of::<$theirs>(), stringify!($ours));
        $(assert_eq!(
            offset_of!($ours, $field),
            offset_of!($theirs, $field),
            concat!(stringify!($ours), ".", stringify!($field)),
        );)+
    };
}

#[test]
fn the_layout_is_that_of_the_header() {
    same!(abi::Totals, header::ts_totals: ns, n);
    same!(abi::Meter, header::ts_meter: seq, tid, since_ns, pending, open, totals, kernel_tid, spans,
        recent);
    same!(abi::Recent, header::ts_recent: episode);
    same!(abi::Episode, header::ts_episode: ns, n, who);
    same!(abi::Row, header::ts_row: begin, wall, id, pid, tid, causes, cpu, name, flags, queue_ns,
        kept);
    same!(abi::Retention, header::ts_retention: always_from, others);
    same!(abi::Share, header::ts_share: ns, n, who);
    same!(abi::Counts, header::ts_counts: group, known);
    same!(abi::Counting, header::ts_counting: group, count, event, refused);
    same!(abi::Chunk, header::ts_chunk: used, tid, rows);
    same!(abi::Name, header::ts_name: length, text);
    same!(abi::Region, header::ts_region: magic, abi, turn, sample, heartbeat, heartbeat_overdue,
        lost, unnamed, chunk_state, names, retention, counting);
    same!(abi::Channel, header::ts_channel: value, kind, reserved, name);
    same!(abi::Channels, header::ts_channels: magic, taken, slot);
    same!(abi::Answer, header::ts_answer: magic, abi, status);
}

#[test]
fn the_numbers_are_those_of_the_header() {
    assert_eq!(abi::ABI, header::TS_ABI);
    assert_eq!(abi::MAGIC, header::TS_MAGIC);
    assert_eq!(abi::CHANNELS_MAGIC, header::TS_CHANNEL_MAGIC);
    assert_eq!(abi::CHANNEL_SLOTS, header::TS_CHANNEL_SLOTS as usize);
    assert_eq!(abi::CHANNEL_NAME, header::TS_CHANNEL_NAME as usize);
    assert_eq!(abi::CHANNEL_FILE, header::TS_CHANNEL_FILE);
    assert_eq!(abi::CAUSES, header::TS_CAUSES as usize);
    assert_eq!(abi::EPISODES, header::TS_EPISODES as usize);
    assert_eq!(abi::RECENTS, header::TS_RECENTS as usize);
    let with_blame = [
        header::TS_RUNQUEUE,
        header::TS_PREEMPTED,
        header::TS_LOCK,
        header::TS_NETWORK,
        header::TS_SLEEP,
        header::TS_IRQ,
        header::TS_SOFTIRQ_NET,
        header::TS_SOFTIRQ_TIMER,
        header::TS_SOFTIRQ_OTHER,
        header::TS_STOPPED,
    ];
    for cause in 0..header::TS_CAUSES {
        let is_kept = with_blame.contains(&cause);
        assert_eq!(abi::recent(cause as usize).is_some(), is_kept, "{cause}");
    }
    assert_eq!(abi::METERS, header::TS_METERS);
    assert_eq!(abi::CHUNKS, header::TS_CHUNKS);
    assert_eq!(u32::from(abi::NAMES), header::TS_NAMES);
    assert_eq!(abi::REGION_HEAD, header::TS_REGION_HEAD as usize);
    assert_eq!(abi::CHUNK_BYTES, header::TS_CHUNK_BYTES as usize);
    assert_eq!(abi::NAME_BYTES, header::TS_NAME_BYTES as usize);
    assert_eq!(abi::NAME_BUSY, header::TS_NAME_BUSY);
    assert_eq!(u32::from(abi::ROW_HAS_ID), header::TS_ROW_HAS_ID);
    assert_eq!(u32::from(abi::ROW_HAS_COUNTS), header::TS_ROW_HAS_COUNTS);
    assert_eq!(abi::COUNTERS, header::TS_COUNTERS as usize);
    assert_eq!(
        abi::SOCKET.as_bytes(),
        &header::TS_SOCKET[..abi::SOCKET.len()]
    );
    assert_eq!(abi::RECORDERS, header::TS_RECORDERS as usize);
    assert_eq!(
        abi::SECOND.as_bytes(),
        &header::TS_SECOND[..abi::SECOND.len()]
    );
    assert_eq!(
        [abi::CHUNK_FREE, abi::CHUNK_OWNED, abi::CHUNK_FULL],
        [
            header::TS_CHUNK_FREE,
            header::TS_CHUNK_OWNED,
            header::TS_CHUNK_FULL
        ]
    );
    assert_eq!(
        [abi::ACCEPTED, abi::NOT_WATCHED],
        [header::TS_ACCEPTED, header::TS_NOT_WATCHED]
    );
}

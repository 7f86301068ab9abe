//! What `ledger.json` looks like.

use tailscope_trace::{
    Cause, CauseSet, Cost, Existing, LEDGER_JSON, LedgerWriter, Sealing, Summary,
};

use crate::sample;

#[test]
fn ledger_json_tells_what_is_known_at_the_begin_and_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let text = || std::fs::read_to_string(folder.path().join(LEDGER_JSON)).unwrap();
    let mut writer = LedgerWriter::create(
        folder.path(),
        sample::metadata(),
        CauseSet::EMPTY.with(Cause::SoftirqNet).with(Cause::Lock),
        Sealing::default(),
        Existing::Refuse,
    )
    .unwrap();
    // The checksum is of the whole text.
    let shown = || {
        let text = text();
        let (rest, crc32) = text.split_once("\"crc32\": \"").unwrap();
        let (crc32, end) = crc32.split_at(8);
        let zeroed = format!("{rest}\"crc32\": \"00000000{end}");
        assert_eq!(crc32, format!("{:08x}", crc32fast::hash(zeroed.as_bytes())));
        zeroed
    };
    insta::assert_snapshot!("recording", shown());

    sample::push_rows(&mut writer, 0..1_000);
    let totals = writer
        .finish(Summary {
            ended_ns: sample::START_NS + 10_000_000_000,
            seen: 4_000,
            lost: [("ring_full".to_owned(), 3), ("slots".to_owned(), 0)].into(),
            uncovered: [("pipelined".to_owned(), 17)].into(),
            adjusted: [("overdrawn".to_owned(), 2)].into(),
            cost: Cost {
                cpu_ns: 123_456,
                max_rss_bytes: 20 << 20,
            },
            overhead: None,
        })
        .unwrap();
    // How many bytes it takes is up to the encoder.
    let bytes = format!("\"bytes\": {}", totals.bytes);
    assert!(text().contains(&bytes));
    insta::assert_snapshot!("done", shown().replace(&bytes, "\"bytes\": 12345"));
}

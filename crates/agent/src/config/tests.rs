use proptest::prelude::*;

use super::*;

const LEAST: &str = "[[process]]\nname = \"memcached\"\n";

fn problem(text: &str) -> (Option<usize>, String) {
    let (at, what) = Config::parse(text).expect_err(text);
    (at.map(|at| place(text, at).0), what)
}

#[test]
fn the_least_is_one_process() {
    let config = Config::parse(LEAST).expect("it is enough");
    assert_eq!(config.record, Recording::default());
    assert_eq!(config.metrics.listen.expect("on").port(), 9745);
    assert_eq!(config.otlp, None);
}

#[test]
fn without_spans_requests_are_recorded() {
    let sources = |record: &str| {
        let config = Config::parse(&format!("{LEAST}[record]\n{record}"));
        config.expect("it is valid").record.sources()
    };
    assert_eq!(sources(""), [SpanSource::Request]);
    assert_eq!(sources("sample = \"10%\""), [SpanSource::ReadySend]);
    assert_eq!(sources("spans = [\"sdk\"]"), [SpanSource::Sdk]);
}

#[test]
fn the_example_in_the_documents_is_valid() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/agent.toml");
    let config = Config::read(&path).expect("the example is valid");
    assert_eq!(*config.ledger.quota.as_ref(), 10_000_000_000);
    // What is commented out is an example too.
    let text = fs::read_to_string(&path).expect("read");
    let all: String = text
        .lines()
        .map(|line| line.strip_prefix("#: ").unwrap_or(line))
        .fold(String::new(), |text, line| text + line + "\n");
    let config = Config::parse(&all).expect("the example with all its lines is valid");
    assert!(config.otlp.is_some());
}

/// Each of these texts, behind the least that is valid, is wrong on this line and for this reason.
fn assert_wrong(texts: &[(&str, usize, &str)]) {
    for &(text, line, why) in texts {
        let (at, what) = problem(&format!("{LEAST}{text}"));
        assert_eq!(at, Some(line), "{text}: {what}");
        assert!(what.contains(why), "{text}: {what}");
    }
}

#[test]
fn a_selection_that_is_wrong_is_told_with_its_line() {
    for (text, line, why) in [
        ("", None, "no [[process]]"),
        ("[[process]]\n", Some(1), "is empty"),
        (
            "[[process]]\nname = \"x\"\ncolour = 1\n",
            Some(3),
            "unknown field `colour`",
        ),
        ("[[process]]\npid = \"x\"\n", Some(2), "invalid type"),
        ("[[process]\n", Some(1), ""),
        ("[[process]]\nname = \"a b c d e f g h i\"\n", Some(1), "15"),
        ("[[process]]\nname = \"\"\n", Some(1), "empty"),
        ("[[process]]\nunit = \"\"\n", Some(1), "empty"),
        ("[[process]]\npid = 0\n", Some(1), "0 is not"),
        ("[process]\nname = \"x\"\n", Some(1), "write [[process]]"),
        (
            "[[process]]\nname = \"x\"\n[[process]]\nexe = \"nginx\"\n",
            Some(3),
            "not an absolute path",
        ),
    ] {
        let (at, what) = problem(text);
        assert_eq!(at, line, "{text}: {what}");
        assert!(what.contains(why), "{text}: {what}");
    }
}

#[test]
fn a_ledger_that_can_not_be_is_told_with_its_line() {
    assert_wrong(&[
        ("[ledger]\nquota = \"10XB\"", 4, "not a number of bytes"),
        ("[ledger]\nquota = \"300MB\"", 4, "must hold two"),
        ("[ledger]\nrotate_size = \"9GB\"", 4, "must hold two"),
        ("[ledger]\nrotate_size = 10", 4, "less than 1MB"),
        ("[ledger]\nfolder = \"run\"", 4, "absolute"),
        ("[ledger]\nrotate_age = \"soon\"", 4, "not a unit"),
    ]);
}

#[test]
fn a_recording_that_can_not_be_is_told_with_its_line() {
    assert_wrong(&[
        ("[record]\nsample = \"110%\"", 4, "not a share"),
        ("[record]\nkeep = 1.5", 4, "not a share"),
        ("[record]\ntail = true", 4, "a text or a number"),
        (
            "[record]\nspans = [\n  \"sdk\",\n  \"jvm:x\",\n]",
            6,
            "unknown span source",
        ),
        (
            "[record]\nspans = [\"syscall:recv..send\", \"syscall:ready..send\"]",
            4,
            "exclude",
        ),
        ("[record]\nspans = []", 4, "spans is empty"),
        (
            "[record]\nsample = \"10%\"\nspans = [\"request\"]",
            5,
            "can't be sampled",
        ),
        (
            "[record]\nsample = 0.1\ntraceparent = true",
            5,
            "without sample",
        ),
        ("[record]\nspans = \"sdk\"", 4, "write a list"),
        (
            "[record]\nspans = [\"sdk\"]\ncounters = [\n  \"cycles\",\n  \"cycels\",\n]",
            7,
            "cycels",
        ),
        (
            "[record]\nspans = [\"sdk\"]\ncounters = [\"r1\", \"r2/name=r1/\"]",
            5,
            "r2",
        ),
        ("[record]\ncounters = [\"cycles\"]", 4, "need SDK spans"),
        ("[record]\nstacks = 0", 4, "1 to 10000"),
        ("[record]\nstacks = true", 4, "invalid type"),
        (
            "[record]\noverhead = \"1%\"\nstacks = 99",
            5,
            "leave out one",
        ),
    ]);
}

#[test]
fn an_export_that_can_not_be_is_told_with_its_line() {
    assert_wrong(&[
        ("[metrics]\nlisten = \"9745\"", 4, "not an address"),
        ("[otlp]\nendpoint = \"https://\"", 4, "not an endpoint"),
        (
            "[otlp]\nendpoint = \"http://x\"\nca_file = \"/dev/null\"",
            5,
            "start with https://",
        ),
        (
            "[otlp]\nendpoint = \"https://x\"\nca_file = \"/none.pem\"",
            5,
            "can't read /none.pem",
        ),
        (
            "[otlp]\nendpoint = \"https://x\"\nca_file = \"/dev/null\"",
            5,
            "no certificate",
        ),
        ("[otlp]\nendpoint = \"x\"", 4, "not an endpoint"),
        (
            "[otlp]\nendpoint = \"http://x:99999\"",
            4,
            "not an endpoint",
        ),
        ("[otlp]\nendpoint = \"http://:4318\"", 4, "not an endpoint"),
        ("[otlp]\nendpoint = \"http://x/?a=b\"", 4, "not an endpoint"),
        (
            "[otlp]\nendpoint = \"http://x:4318/v1/traces\"",
            4,
            "leave it out",
        ),
        (
            "[otlp]\nendpoint = \"http://x\"\nheaders = { \"a b\" = \"c\" }",
            5,
            "not a valid header name",
        ),
        (
            "[otlp]\nendpoint = \"http://x\"\nheaders = { a = \"b\\nc\" }",
            5,
            "header 'a'",
        ),
        (
            "[otlp]\nendpoint = \"http://x\"\nspans_per_second = 0",
            5,
            "0 would send nothing",
        ),
        (
            "[otlp]\nendpoint = \"http://x\"\nqueue = 9000000000000000000",
            5,
            "use 1 to",
        ),
        ("[otlp]\nendpoint = \"http://x\"\nqueue = 0", 5, "use 1 to"),
    ]);
}

#[test]
fn what_is_missing_unknown_or_there_twice_is_told_with_its_line() {
    assert_wrong(&[
        ("[otlp]\n", 3, "missing field `endpoint`"),
        ("[weather]\n", 3, "unknown field `weather`"),
        ("[ledger]\nquota = \"1GB\"\nquota = \"2GB\"", 5, "duplicate"),
    ]);
}

#[test]
fn endpoints_are_read_as_people_write_them() {
    for (text, base) in [
        ("http://127.0.0.1:4318", "http://127.0.0.1:4318"),
        ("https://collector.example/", "https://collector.example"),
        ("http://[::1]:4318/otlp/", "http://[::1]:4318/otlp"),
        ("http://name:word@host:80", "http://name:word@host:80"),
    ] {
        let config = Config::parse(&format!("{LEAST}[otlp]\nendpoint = \"{text}\""));
        let read = config.map(|config| config.otlp.map(|otlp| otlp.endpoint));
        assert_eq!(read, Ok(Some(base.to_owned())), "{text}");
    }
}

#[test]
fn counters_are_named_as_on_the_command_line() {
    let text = format!(
        "{LEAST}[record]\nspans = [\"sdk\"]\ncounters = [\"cycles\", \"r1c2\", \"cycles\"]"
    );
    let config = Config::parse(&text).expect("valid");
    let columns: Vec<String> = config
        .record
        .counters()
        .into_iter()
        .map(|e| e.column)
        .collect();
    assert_eq!(columns, ["cycles", "r1c2"]);
}

#[test]
fn numbers_may_be_written_as_texts_or_not() {
    let text = format!(
        "{LEAST}[record]\nkeep = 0.01\ntail = 99.9\nbudget = \"1MB/s\"\n[metrics]\nlisten = \"\""
    );
    let config = Config::parse(&text).expect("valid");
    let policy = config.record.policy();
    assert_eq!(policy.others, 0.01);
    assert!((policy.tail.expect("set") - 0.999).abs() < 1e-9);
    assert_eq!(policy.budget, Some(1_000_000));
    assert_eq!(config.metrics.listen, None);
}

proptest! {
    #[test]
    fn foreign_text_never_panics(
        lines in proptest::collection::vec(
            "(\\[\\[?(process|record|ledger|metrics|otlp)\\]?\\]|(name|exe|pid|quota|keep|spans|listen|endpoint) = (\"[a-z0-9%:./\u{e9}]{0,8}\"|-?[0-9.e]{1,6}|\\[\"sdk\"\\]|true))",
            0..12,
        ),
    ) {
        let text = lines.join("\n");
        if let Err((Some(at), what)) = Config::parse(&text) {
            let (line, column) = place(&text, at);
            prop_assert!(line <= lines.len().max(1) + 1 && column >= 1, "{} at {}:{}", what, line, column);
            prop_assert!(!what.is_empty());
        }
    }

    #[test]
    fn what_is_valid_stays_valid_and_says_the_same(
        size in 1u64..1000, times in 2u64..100, age in 1u32..1000, share in 1u32..100,
    ) {
        let text = format!(
            "{LEAST}[ledger]\nrotate_size = \"{size}MB\"\nquota = \"{}MB\"\nrotate_age = \"{age}m\"\n[record]\nkeep = \"{share}%\"",
            size * times,
        );
        let config = Config::parse(&text).expect("valid");
        prop_assert_eq!(*config.ledger.rotate_size.as_ref(), size * 1_000_000);
        prop_assert_eq!(*config.ledger.quota.as_ref(), size * times * 1_000_000);
        prop_assert_eq!(*config.ledger.rotate_age.as_ref(), Duration::from_secs(u64::from(age) * 60));
        prop_assert!((config.record.policy().others - f64::from(share) / 100.0).abs() < 1e-9);
    }
}

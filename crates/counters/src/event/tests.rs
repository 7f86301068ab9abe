//! Names against recorded trees of sysfs (`tests/sysfs`), one of each kind of machine.

use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::*;

fn tree(name: &str) -> Pmus {
    let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/sysfs")
        .join(name);
    let found = Pmus::read(&folder);
    assert!(folder.is_dir(), "{}", folder.display());
    found
}

fn parsed(name: &str, pmus: &Pmus) -> (String, u32, [u64; 3]) {
    let event = Event::parse(name, pmus).unwrap_or_else(|e| panic!("{e}"));
    (event.column, event.kind, event.config)
}

#[test]
fn generic_names_are_the_same_on_every_machine() {
    for pmus in [
        tree("intel"),
        tree("arm64"),
        tree("no-pmu"),
        Pmus::default(),
    ] {
        assert_eq!(
            parsed("instructions", &pmus),
            ("instructions".into(), 0, [1, 0, 0])
        );
        assert_eq!(parsed("cpu-cycles", &pmus), ("cycles".into(), 0, [0, 0, 0]));
        assert_eq!(
            parsed("cache-misses", &pmus),
            ("cache_misses".into(), 0, [3, 0, 0])
        );
        assert_eq!(
            parsed("ref-cycles", &pmus),
            ("ref_cycles".into(), 0, [9, 0, 0])
        );
        assert_eq!(
            parsed("L1-dcache-load-misses", &pmus),
            ("l1_dcache_load_misses".into(), 3, [0x1_0000, 0, 0])
        );
        assert_eq!(
            parsed("llc-stores", &pmus),
            ("llc_stores".into(), 3, [0x102, 0, 0])
        );
        assert_eq!(
            parsed("iTLB-load-misses", &pmus),
            ("itlb_load_misses".into(), 3, [0x1_0004, 0, 0])
        );
    }
}

#[test]
fn raw_numbers_need_no_pmu() {
    assert_eq!(
        parsed("r01c2", &Pmus::default()),
        ("r01c2".into(), 4, [0x1c2, 0, 0])
    );
    assert_eq!(
        parsed("rC0", &Pmus::default()),
        ("rc0".into(), 4, [0xc0, 0, 0])
    );
}

#[test]
fn aliases_are_those_of_the_machine() {
    let intel = tree("intel");
    assert_eq!(
        parsed("mem-loads", &intel),
        ("mem_loads".into(), 4, [0x1cd, 3, 0]),
        "its terms are event, umask and ldat"
    );
    assert_eq!(parsed("cpu/mem-loads/", &intel).2, [0x1cd, 3, 0]);
    assert_eq!(
        parsed("cpu/mem-loads,ldat=0x20/", &intel).2,
        [0x1cd, 3 | 0x20, 0]
    );
    let arm = tree("arm64");
    assert_eq!(
        parsed("inst_retired", &arm),
        ("inst_retired".into(), 10, [8, 0, 0])
    );
    assert!(Event::parse("inst_retired", &intel).is_err());
}

#[test]
fn terms_go_where_the_format_says() {
    let intel = tree("intel");
    assert_eq!(
        parsed("cpu/event=0xc2,umask=0x1,cmask=2,inv/", &intel),
        (
            "cpu_event_0xc2_umask_0x1_cmask_2_inv".into(),
            4,
            [0xc2 | 1 << 8 | 1 << 23 | 2 << 24, 0, 0]
        )
    );
    assert_eq!(
        parsed(
            "cpu/event=0xb7,offcore_rsp=0x3fbfc00001,name=remote/",
            &intel
        ),
        ("remote".into(), 4, [0xb7, 0x3f_bfc0_0001, 0])
    );
    assert_eq!(
        parsed("armv8_pmuv3/event=0x8/", &tree("arm64")),
        ("armv8_pmuv3_event_0x8".into(), 10, [8, 0, 0])
    );
    assert_eq!(parsed("cpu/config=0x3c,config2=7/", &intel).2, [0x3c, 0, 7]);
}

#[test]
fn what_is_no_event_says_what_would_be() {
    let intel = tree("intel");
    let said =
        |name: &str, pmus: &Pmus| Event::parse(name, pmus).expect_err("no event").to_string();
    assert!(said("instructons", &intel).contains("(did you mean instructions?)"));
    assert!(said("no-such-event", &intel).contains("`perf list`"));
    assert!(said("cpu/event=0x1ff/", &intel).contains("0x1ff does not fit into 'event'"));
    assert!(said("cpu/evnt=1/", &intel).contains("no term or event 'evnt'"));
    assert!(said("cpu/event=many/", &intel).contains("'many' is not a number"));
    assert!(said("cpu/event=1/", &tree("arm64")).contains("it has armv8_pmuv3"));
    assert!(said("cpu/event=1/", &tree("no-pmu")).contains("no hardware counters"));
    assert!(said("uncore_imc_0/event=4/", &intel).contains("no PMU 'uncore_imc_0'"));
}

#[test]
fn shared_units_and_software_are_no_counters_of_a_core() {
    let names = |pmus: Pmus| pmus.0.into_iter().map(|pmu| pmu.name).collect::<Vec<_>>();
    assert_eq!(names(tree("intel")), ["cpu"]);
    assert_eq!(names(tree("arm64")), ["armv8_pmuv3"]);
    assert!(names(tree("no-pmu")).is_empty());
}

#[test]
fn a_list_keeps_the_commas_between_slashes() {
    let list = "instructions, cpu/event=0xc2,umask=1,name=uops/,cycles";
    let events = Event::parse_list(list, &tree("intel")).expect("a list");
    let columns: Vec<_> = events.iter().map(|event| event.column.as_str()).collect();
    assert_eq!(columns, ["instructions", "uops", "cycles"]);
}

proptest! {
    #[test]
    fn foreign_names_never_panic(name: String) {
        let _ = Event::parse_list(&name, &tree("intel"));
    }

    #[test]
    fn terms_never_panic(name in "cpu/[a-z0-9=,x]{0,40}/") {
        let _ = Event::parse(&name, &tree("intel"));
    }
}

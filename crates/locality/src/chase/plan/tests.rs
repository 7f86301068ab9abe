//! Texts become plans, or an error that says what to write.

use proptest::prelude::*;

use super::*;

fn phase(text: &str) -> PhaseLines {
    text.parse().expect(text)
}

fn shared(text: &str) -> SharedLines {
    text.parse().expect(text)
}

#[test]
fn phases_and_shared_lines_become_groups() {
    let phases = [phase("8,0.5,2/256"), phase("0/512,10%")];
    let spread = Spread::Even(1);
    let both = [shared("4/64:0,0,1,3,4/1")];
    let plan = Plan::new(&phases, &both, spread).expect("a plan");
    let used = |phase, updates, accesses| Use {
        phase,
        updates,
        accesses,
    };
    let group = |scope, lines, uses| Group { scope, lines, uses };
    let expected = vec![
        group(Scope::Session, 8, vec![used(0, 0.5, 2.0)]),
        group(Scope::Global, 256, vec![used(0, 0.0, 1.0)]),
        group(Scope::Global, 512, vec![used(1, 0.1, 1.0)]),
        group(
            Scope::Session,
            4,
            vec![used(0, 0.0, 3.0), used(1, 0.0, 1.0)],
        ),
        group(
            Scope::Global,
            64,
            vec![used(0, 1.0, 4.0), used(1, 0.0, 1.0)],
        ),
    ];
    assert_eq!((plan.phases, &plan.groups), (2, &expected));
    assert_eq!(plan.working_set(), (8 + 256 + 512 + 4 + 64) * 64);
    assert_eq!(plan.bytes(100), (12 * 100 + 832) * 64);
}

#[test]
fn relative_accesses_divide_what_fits_and_leave_each_line_one() {
    let phases = [phase("8,0,4/8,0,1"), phase("0/8,0,0.001")];
    let plan = Plan::new(&phases, &[], Spread::Even(16)).expect("a plan");
    let counts = |group: &Group| plan.counts(group, &group.uses[0])[0];
    let counts: Vec<usize> = plan.groups.iter().map(counts).collect();
    assert_eq!(counts, [16, 4, 1]);
}

#[test]
fn plans_without_sense_are_refused() {
    let check = |phases: &[PhaseLines], both: &[SharedLines]| {
        Plan::new(phases, both, Spread::Even(1)).expect_err("no plan")
    };
    assert_eq!(check(&[phase("0/0")], &[]), PlanError::EmptyPhase(0));
    let both = [shared("1/1:0/2")];
    assert_eq!(check(&[phase("1/1")], &both), PlanError::NoPhase(2));
    let uses: Vec<String> = (0..17).map(|phase| phase.to_string()).collect();
    let many = [shared(&format!("1/1:{}", uses.join("/")))];
    let phases = vec![phase("1/1"); 17];
    assert_eq!(check(&phases, &many), PlanError::Shared(17));
}

#[test]
fn texts_that_describe_no_lines_say_what_to_write() {
    for (text, word) in [
        ("", "no /"),
        ("8", "no /"),
        ("x/1", "'x' is no number of lines"),
        ("1/-1", "'-1' is no number"),
        ("1/1,2", "'2' is no share"),
        ("1/1,nan", "'nan' is no share"),
        ("1/1,0,0", "'0' is no relative"),
        ("1/1,0,inf", "'inf' is no relative"),
        ("1/1,0,1,1", "more than three"),
        ("99999999999/1", "no number of lines"),
    ] {
        let error = text.parse::<PhaseLines>().expect_err(text).to_string();
        assert!(
            error.contains(word) && error.contains("8/512,0.5"),
            "{error}"
        );
    }
    for (text, word) in [
        ("1/1", "no :"),
        ("1:0/1", "no / before"),
        ("1/1:0", "fewer than two"),
        ("1/1:0/0", "phase 0 appears twice"),
        ("1/1:0,0/1", "2 fields"),
        ("1/1:a/1", "'a' is no phase"),
        ("1/1:0/1,0,2", "'2' is no share"),
    ] {
        let error = text.parse::<SharedLines>().expect_err(text).to_string();
        assert!(error.contains(word) && error.contains("4/64"), "{error}");
    }
    for text in [
        "", "zipf:", "zipf:-1", "zipf:nan", "even:0", "even:17", "even:1.5",
    ] {
        assert!(spread(text).is_err(), "{text}");
    }
    assert_eq!(spread("zipf"), Ok(Spread::Zipf(1.0)));
    assert_eq!(spread("even:4"), Ok(Spread::Even(4)));
}

proptest! {
    #[test]
    fn no_text_causes_a_panic(text in "[0-9./,:a-z%-]{0,24}") {
        let _ = (text.parse::<PhaseLines>(), text.parse::<SharedLines>());
        let _ = (updates(&text), spread(&text), text.parse::<crate::chase::size::Size>());
    }

    #[test]
    fn counts_are_between_one_and_what_fits(lines in 1usize..200, s in 0.0..10.0, a in 0.001..1e6) {
        let text = format!("0/{lines},0,{a}");
        let plan = Plan::new(&[phase(&text), phase("0/1")], &[], Spread::Zipf(s));
        let plan = plan.expect("a plan");
        let counts = plan.counts(&plan.groups[0], &plan.groups[0].uses[0]);
        prop_assert!(counts.iter().all(|count| (1..=SLOTS).contains(count)));
        prop_assert!(counts.is_sorted_by(|a, b| a >= b));
    }
}

use std::fs;

use proptest::prelude::*;

use super::*;

/// Two cores of two hardware threads; CPU 3 is off; 4 and 5 have a core each.
fn machine() -> Topology {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("inside")).expect("made");
        fs::write(path, text).expect("written");
    };
    write("online", "0-2,4-5\n");
    write("present", "0-5\n");
    for (cpu, threads) in [(0, "0,2"), (1, "1"), (2, "0,2"), (4, "4"), (5, "5")] {
        write(&format!("cpu{cpu}/topology/thread_siblings_list"), threads);
    }
    Topology::read(folder.path()).expect("read")
}

fn wish(application: &[u32], observed: Option<u32>) -> Wish {
    Wish {
        application: application.to_vec(),
        observed,
        ..Wish::default()
    }
}

const ALL: &[u32] = &[0, 1, 2, 3, 4, 5];

#[test]
fn a_core_that_the_application_cannot_use_is_best() {
    let placed = Placement::choose(&machine(), ALL, &wish(&[0, 4, 5], Some(0)));
    let placed = placed.expect("there are CPUs");
    assert_eq!(
        (placed.cpu, placed.shared, placed.same_core),
        (1, false, false)
    );
}

#[test]
fn on_the_same_core_is_its_other_hardware_thread() {
    let on = |on, observed| {
        let wish = Wish {
            on: Some(on),
            ..wish(&[], Some(observed))
        };
        Placement::choose(&machine(), ALL, &wish)
    };
    let placed = on(Where::SameCore, 0).expect("0 and 2 share one");
    assert_eq!((placed.cpu, placed.same_core), (2, true));
    assert_eq!(
        on(Where::SameCore, 1),
        Err(PlacementError::NoSibling { observed: 1 })
    );
    assert_eq!(on(Where::OtherCore, 5).expect("others").cpu, 4);
    let unknown = Wish {
        on: Some(Where::SameCore),
        ..Wish::default()
    };
    assert_eq!(
        Placement::choose(&machine(), ALL, &unknown),
        Err(PlacementError::Unknown)
    );
}

#[test]
fn impossible_wishes_are_told_apart() {
    let at = |cpu, allowed: &[u32]| {
        let wish = Wish {
            cpu: Some(cpu),
            ..wish(&[1], None)
        };
        Placement::choose(&machine(), allowed, &wish)
    };
    assert!(matches!(at(3, ALL), Err(PlacementError::Offline { .. })));
    assert!(matches!(at(9, ALL), Err(PlacementError::None { .. })));
    assert!(matches!(
        at(4, &[0, 1]),
        Err(PlacementError::NotAllowed { .. })
    ));
    assert_eq!(at(1, ALL), Err(PlacementError::Taken(1)));
    assert_eq!(at(2, ALL).map(|placed| placed.cpu), Ok(2));
}

#[test]
fn one_cpu_is_not_enough() {
    let only = |sleeps| {
        let wish = Wish {
            sleeps,
            ..wish(&[4], None)
        };
        Placement::choose(&machine(), &[4], &wish)
    };
    assert_eq!(only(false), Err(PlacementError::OnlyOne(4)));
    // Unless it only wakes up for its samples.
    assert_eq!(only(true).map(|at| (at.cpu, at.shared)), Ok((4, true)));
    let single = Topology {
        online: vec![0],
        ..machine()
    };
    assert_eq!(
        Placement::choose(&single, &[0], &wish(&[], None)),
        Err(PlacementError::OnlyOne(0))
    );
}

proptest! {
    #[test]
    fn what_is_chosen_may_be_used(
        allowed in proptest::collection::btree_set(0u32..7, 0..7),
        application in proptest::collection::btree_set(0u32..6, 0..6),
        observed in proptest::option::of(0u32..6),
    ) {
        let allowed: Vec<u32> = allowed.into_iter().collect();
        let application: Vec<u32> = application.into_iter().collect();
        let machine = machine();
        if let Ok(placed) = Placement::choose(&machine, &allowed, &wish(&application, observed)) {
            prop_assert!(allowed.contains(&placed.cpu) && machine.online.contains(&placed.cpu));
            prop_assert_ne!(Some(placed.cpu), placed.observed);
        }
    }
}

#[test]
fn a_thread_can_be_moved_to_where_it_may_run() {
    let allowed = allowed_here().expect("asked");
    let cpu = *allowed.last().expect("we run somewhere");
    let placement = Placement {
        cpu,
        observed: None,
        same_core: false,
        shared: false,
    };
    std::thread::spawn(move || {
        if allowed.len() > 1 {
            placement.leave().expect("there are others");
            assert!(!allowed_here().expect("asked").contains(&cpu));
        }
        placement.take().expect("allowed");
        assert_eq!(allowed_here().expect("asked"), [cpu]);
        placement.leave().expect("it stays where there is no other");
        assert_eq!(allowed_here().expect("asked"), [cpu]);
    })
    .join()
    .expect("moved");
}

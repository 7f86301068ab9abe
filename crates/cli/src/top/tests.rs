//! Pictures as they are seen, and what keys do to them.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use tailscope_record::{Breakdown, Code};
use tailscope_trace::{Cause, CauseSet};
use unicode_width::UnicodeWidthStr;

use super::line::Room;
use super::picture::picture;
use super::snapshot::{Figures, Kind, Snapshot};
use super::view::{Column, Page, View, Wish};

fn breakdown(spans: f64, wall_ns: f64, causes: &[(Cause, f64)]) -> Breakdown {
    let mut breakdown = Breakdown {
        spans,
        wall_ns: spans * wall_ns,
        ..Breakdown::default()
    };
    for (cause, ns) in causes {
        breakdown.cause_ns[cause.index()] = spans * ns;
    }
    breakdown
}

fn kind(name: &str, rate: f64, quantiles: [u64; 3], causes: &[(Cause, f64)]) -> Kind {
    let spans = rate * 10.0;
    let few: Vec<_> = causes
        .iter()
        .map(|(cause, ns)| (*cause, ns / 100.0))
        .collect();
    let recent = Figures {
        spans: spans as u64,
        rate,
        quantiles: Some(quantiles),
        all: breakdown(spans, quantiles[0] as f64, &few),
        tail: breakdown(spans / 100.0, quantiles[1] as f64 * 1.2, causes),
    };
    Kind {
        name: name.into(),
        figures: [recent, Figures::default()],
        code: Vec::new(),
    }
}

fn view() -> View {
    let mut view = View::new(
        "4711  syscall:ready..send".into(),
        CauseSet::ALL.without(Cause::Steal),
        Column::P99,
        String::new(),
    );
    let kinds = vec![
        kind(
            "ready..send",
            4012.3,
            [28_100, 1_580_000, 2_900_000],
            &[
                (Cause::Runqueue, 1_440_000.0),
                (Cause::Preempted, 300_000.0),
                (Cause::Queue, 70_000.0),
            ],
        ),
        kind(
            "query",
            180.0,
            [410_000, 999_700_000, 1_204_000_000],
            &[(Cause::Io, 9e8), (Cause::Lock, 1e8)],
        ),
        kind(
            "a name that is far too long for a narrow terminal",
            2.5,
            [740, 980, 999],
            &[(Cause::Irq, 500.0)],
        ),
        kind("ünïcode", 0.0, [1, 2, 3], &[]),
    ];
    let mut snapshot = Snapshot {
        seconds: [9.6, 61.0],
        kinds,
    };
    snapshot.kinds[3].figures[0] = Figures::default();
    (0..40).for_each(|_| view.update(snapshot.clone()));
    view.lost = 12;
    view
}

fn room(width: usize, height: usize) -> Room {
    Room {
        width,
        height: Some(height),
        unicode: true,
    }
}

fn screen(view: &View, room: &Room) -> String {
    let lines = picture(view, room);
    if let Some(height) = room.height {
        assert_eq!(lines.len(), height);
    }
    let texts: Vec<_> = lines.iter().map(|line| line.text()).collect();
    assert!(
        texts.iter().all(|text| text.width() <= room.width),
        "{texts:#?}"
    );
    texts
        .iter()
        .map(|text| format!("{}\n", text.trim_end()))
        .collect()
}

fn press(view: &mut View, keys: &str) {
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            '\x1b' => KeyCode::Esc,
            'v' => KeyCode::Down,
            key => KeyCode::Char(key),
        };
        assert_eq!(
            view.press(KeyEvent::new(code, KeyModifiers::NONE)),
            Wish::GoOn
        );
    }
}

fn names(view: &View) -> Vec<&str> {
    view.kinds().iter().map(|kind| kind.name.as_str()).collect()
}

#[test]
fn the_list_at_every_size() {
    for (width, height) in [(80, 24), (60, 20), (120, 40)] {
        insta::assert_snapshot!(
            format!("list_{width}x{height}"),
            screen(&view(), &room(width, height))
        );
    }
}

#[test]
fn the_functions_of_slow_spans() {
    let mut view = view();
    let code = |cause, ns, functions: &[&str]| Code {
        cause,
        functions: functions.iter().map(|name| (*name).to_owned()).collect(),
        ns,
    };
    view.snapshot.kinds[1].code = vec![
        code(Some(Cause::Io), 8.8e8, &["read_page", "scan", "handle"]),
        code(None, 2e7, &["sort\u{1b}[31m"]),
    ];
    view.stacks = true;
    for (width, height) in [(80, 24), (120, 12)] {
        insta::assert_snapshot!(
            format!("functions_list_{width}x{height}"),
            screen(&view, &room(width, height))
        );
    }
    press(&mut view, "\n");
    insta::assert_snapshot!("functions_detail_80x24", screen(&view, &room(80, 24)));
    press(&mut view, "\nv\n");
    assert!(screen(&view, &room(60, 24)).contains("none was seen often enough yet"));
}

#[test]
fn the_other_pages() {
    let mut view = view();
    press(&mut view, "v\n");
    insta::assert_snapshot!("detail_80x24", screen(&view, &room(80, 24)));
    press(&mut view, "?");
    insta::assert_snapshot!("help_80x24", screen(&view, &room(80, 24)));
}

#[test]
fn the_whole_help_can_be_read_on_a_small_screen() {
    let mut view = view();
    press(&mut view, "?");
    assert!(!screen(&view, &room(80, 24)).contains("the span's own instructions"));
    press(&mut view, "jjjjjjjjjjjjjjjjjjjjjjjjjjjjjj");
    assert!(screen(&view, &room(80, 24)).contains("the span's own instructions"));
    press(&mut view, "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkk");
    assert!(screen(&view, &room(80, 24)).contains("select a kind"));
}

#[test]
fn an_ascii_locale_gets_ascii_alone() {
    let mut view = view();
    for keys in ["", "\n", "?"] {
        press(&mut view, keys);
        let shown = screen(
            &view,
            &Room {
                unicode: false,
                ..room(80, 24)
            },
        );
        assert!(shown.is_ascii(), "{shown}");
    }
}

#[test]
fn a_pipe_gets_all_kinds_and_no_keys() {
    let shown = screen(
        &view(),
        &Room {
            width: 100,
            height: None,
            unicode: true,
        },
    );
    insta::assert_snapshot!("pipe", shown);
}

#[test]
fn no_room_is_no_reason_to_panic() {
    let mut view = view();
    for keys in ["", "\n", "?", "?/"] {
        press(&mut view, keys);
        for width in 0..50 {
            for height in [1, 2, 3, 5, 8] {
                picture(&view, &room(width, height));
            }
        }
    }
}

#[test]
fn keys_sort_and_filter() {
    let mut view = view();
    assert_eq!(names(&view)[..2], ["query", "ready..send"]);
    press(&mut view, "<<");
    assert_eq!((view.sort, names(&view)[0]), (Column::Rate, "ready..send"));
    press(&mut view, "r");
    assert_eq!(names(&view)[3], "ready..send");
    press(&mut view, "/QuE\n");
    assert_eq!(names(&view), ["query"]);
    press(&mut view, "\x1b");
    assert_eq!(names(&view).len(), 4);
}

#[test]
fn the_chosen_kind_stays_chosen_where_others_overtake_it() {
    let mut view = view();
    press(&mut view, "v\n");
    assert_eq!(
        (view.chosen.as_str(), view.page),
        ("ready..send", Page::Detail)
    );
    press(&mut view, "r");
    assert_eq!(names(&view)[view.chosen()], "ready..send");
}

#[test]
fn what_is_frozen_does_not_change() {
    let mut view = view();
    press(&mut view, " ");
    view.update(Snapshot::default());
    assert_eq!(names(&view).len(), 4);
    press(&mut view, " ");
    view.update(Snapshot::default());
    assert!(names(&view).is_empty());
    assert!(screen(&view, &room(80, 24)).contains("no span has ended yet"));
}

#[test]
fn times_take_three_digits() {
    let room = room(80, 24);
    let times = [
        0.0, 999.4, 999.6, 9_994.0, 9_996.0, 99_960.0, 999_600.0, 1.5e9, 2e12,
    ];
    let texts = times.map(|ns| room.time(ns));
    assert_eq!(
        texts,
        [
            "0 ns", "999 ns", "1.00 µs", "9.99 µs", "10.0 µs", "100 µs", "1.00 ms", "1.50 s",
            "2000 s"
        ]
    );
}

#[test]
fn a_filter_steers_no_terminal_and_has_the_locales_letters() {
    let mut view = view();
    view.filter = "\x1b[2Jé".into();
    let room = Room {
        unicode: false,
        ..room(80, 24)
    };
    // Named in the keys' line, where none is found, and while it is typed.
    for typing in [false, true] {
        view.typing = typing;
        let shown = screen(&view, &room);
        assert!(shown.contains(r"\x1b[2J?"), "{shown}");
        let plain = |c: char| c == '\n' || (c.is_ascii() && !c.is_control());
        assert!(shown.chars().all(plain), "{shown:?}");
    }
}

use tailscope_trace::Names;

use super::*;

struct Stage {
    live: Live,
    names: Names,
    start: Instant,
}

impl Stage {
    fn new() -> Self {
        let start = Instant::now();
        let mut live = Live::default();
        live.advance(start);
        Self {
            live,
            names: Names::default(),
            start,
        }
    }

    fn at(&self, seconds: f64) -> Instant {
        self.start + Duration::from_secs_f64(seconds)
    }

    fn enter(&mut self, name: &str, wall_ns: i64, weight: f64) {
        let row = SpanRow {
            wall_ns,
            weight,
            ..SpanRow::default()
        };
        let name = self.names.intern(name);
        self.live
            .enter(&row, (NOBODY, name), || self.names.text(name).clone());
    }
}

#[test]
fn kinds_are_apart_and_what_is_old_is_let_go() {
    let mut stage = Stage::new();
    for second in 0..20 {
        stage.live.advance(stage.at(f64::from(second)));
        stage.enter("get", 1000 * i64::from(second + 1), 1.0);
        stage.enter("set", 7, 2.0);
    }
    let now = stage.at(19.5);
    stage.live.advance(now);
    let [get, set] = stage.live.kinds() else {
        panic!("two kinds: {:?}", stage.live.kinds().len());
    };
    assert_eq!((get.name(), set.name()), ("get", "set"));
    // Slices begin at 10, 12, 14, 16 and 18 s.
    assert_eq!(stage.live.window(now), Duration::from_secs_f64(9.5));
    assert_eq!(stage.live.age(now), Duration::from_secs_f64(19.5));
    assert_eq!((get.recent().spans(), set.recent().spans()), (10, 20));
    assert_eq!((get.total().spans(), set.total().spans()), (20, 40));
    let oldest = get.recent().quantile(0.0).expect("there are spans");
    assert!((10_900..=11_100).contains(&oldest), "{oldest}");
    assert_eq!(stage.live.total().spans(), 60);
}

#[test]
fn a_long_pause_empties_the_last_seconds() {
    let mut stage = Stage::new();
    stage.enter("get", 1000, 1.0);
    stage.live.advance(stage.at(3601.0));
    assert_eq!(stage.live.kinds()[0].recent().spans(), 0);
    assert_eq!(stage.live.kinds()[0].total().spans(), 1);
    assert_eq!(stage.live.window(stage.at(3601.0)), Duration::from_secs(9));
}

#[test]
fn weights_that_are_not_whole_add_up() {
    let mut stage = Stage::new();
    (0..1000).for_each(|_| stage.enter("get", 1000, 1.25));
    let total = stage.live.kinds()[0].total();
    assert_eq!((total.rows(), total.spans()), (1000, 1250));
    assert_eq!(total.whole().spans, 1250.0);
}

#[test]
fn kinds_without_room_are_counted_together() {
    let mut stage = Stage::new();
    for kind in 0..MOST_KINDS + 3 {
        stage.enter(&format!("kind {kind}"), 1000, 1.0);
    }
    stage.enter("kind 0", 1000, 1.0);
    stage.enter(&format!("kind {}", MOST_KINDS + 1), 1000, 1.0);
    let kinds = stage.live.kinds();
    assert_eq!(kinds.len(), MOST_KINDS + 1);
    assert_eq!(kinds[0].total().spans(), 2);
    let other = kinds.last().expect("there are kinds");
    assert_eq!((other.name(), other.total().spans()), (OTHER_KINDS, 4));
    assert_eq!(stage.live.folded(), 3);
}

#[test]
fn a_user_with_many_names_leaves_room_for_one_with_few() {
    let mut stage = Stage::new();
    let mut enter = |user: u32, name: &str| {
        let row = SpanRow {
            wall_ns: 1000,
            ..SpanRow::default()
        };
        let name = stage.names.intern(name);
        stage
            .live
            .enter(&row, (user, name), || stage.names.text(name).clone());
    };
    for kind in 0..10 * MOST_KINDS {
        enter(7, &format!("foreign {kind}"));
    }
    enter(8, "real");
    enter(7, "real");
    enter(8, "real");
    let kinds = stage.live.kinds();
    let of = |user: Option<u32>, name: &str| {
        let kind = kinds
            .iter()
            .find(|kind| kind.user() == user && kind.name() == name);
        kind.map(|kind| kind.total().rows())
    };
    assert_eq!(of(Some(8), "real"), Some(2), "apart from the other user's");
    assert_eq!(of(Some(7), "real"), None, "one of its many");
    let all: u64 = kinds.iter().map(|kind| kind.total().rows()).sum();
    assert_eq!(
        (kinds.len(), all),
        (MOST_KINDS + 1, 10 * MOST_KINDS as u64 + 3)
    );
}

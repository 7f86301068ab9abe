use proptest::prelude::*;

use super::*;

const SMT: Model = Model {
    overlap_speed: 0.6,
    leave_ns: 0,
    wake_ns: 0,
};
const BUDGET_NS: u64 = 40_000;

/// Poisson arrivals, with work of a mean of 100 µs: exponential, or the same for all.
fn poisson(load: f64, count: usize, seed: u64, exponential: bool) -> Vec<Request> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut arrival = 0.0;
    let mut drawn = move || -(1.0 - random.f64()).ln() * 100_000.0;
    (0..count)
        .map(|_| {
            arrival += drawn() / load;
            let work = if exponential { drawn() } else { 100_000.0 };
            Request {
                arrival_ns: arrival as u64,
                work_ns: work as u64,
            }
        })
        .collect()
}

/// How each request was served.
fn served(requests: &[Request], policy: Policy, model: Model) -> Vec<lane::Served> {
    let mut lane = Lane::new(model, 0);
    (0..requests.len())
        .map(|i| {
            let next = requests.get(i + 1).map(|r| r.arrival_ns);
            lane.serve(requests[i], next, policy, None)
        })
        .collect()
}

fn played(requests: &[Request], policy: Policy, model: Model) -> Outcome {
    simulate(&[requests.to_vec()], policy, model)
}

fn mean_wait(requests: &[Request]) -> f64 {
    played(requests, Policy::Nothing, SMT).mean_wait_ns
}

#[test]
fn without_lending_it_is_the_queue_of_the_formula() {
    // Pollaczek and Khinchine: the mean wait is load × E[S²] / (2 E[S] (1 − load)).
    for (load, exponential, seeds) in [(0.3, true, 4), (0.5, true, 8), (0.5, false, 4)] {
        let squares = if exponential { 2.0 } else { 1.0 };
        let formula = load * squares * 100_000.0 / (2.0 * (1.0 - load));
        let runs = (0..seeds).map(|seed| mean_wait(&poisson(load, 1_000_000, seed, exponential)));
        let mean = runs.sum::<f64>() / seeds as f64;
        assert!((mean / formula - 1.0).abs() < 0.01, "{mean} for {formula}");
    }
}

/// Any requests, at any load.
fn any_requests() -> impl Strategy<Value = Vec<Request>> {
    proptest::collection::vec((0..300_000u64, 0..200_000u64), 1..200).prop_map(|pairs| {
        let mut arrival_ns = 0;
        let request = |(gap, work_ns)| {
            arrival_ns += gap;
            Request {
                arrival_ns,
                work_ns,
            }
        };
        pairs.into_iter().map(request).collect()
    })
}

proptest! {
    #[test]
    fn no_request_is_slowed_beyond_its_budget(
        requests in any_requests(),
        budget in 0..200_000u64,
        speed in 0.0..0.99f64,
    ) {
        let model = Model { overlap_speed: speed, ..SMT };
        for policy in [
            Policy::Idle, Policy::Fixed(budget), Policy::Refresh(budget), Policy::Dynamic(budget),
        ] {
            for (request, served) in requests.iter().zip(served(&requests, policy, model)) {
                let slowed = served.end_ns - served.start_ns - request.work_ns;
                let most = if policy == Policy::Idle { 0 } else { budget };
                prop_assert!(slowed <= most + 2, "{:?}: {} of {}", policy, slowed, most);
            }
        }
    }

    #[test]
    fn with_a_fixed_budget_no_latency_grows_by_more(
        requests in any_requests(), budget in 0..200_000u64,
    ) {
        let alone = served(&requests, Policy::Nothing, SMT);
        let lent = served(&requests, Policy::Fixed(budget), SMT);
        // A delay may join two busy times, and the budget starts anew only when both are over.
        let mut delay_before = 0;
        for ((request, alone), lent) in requests.iter().zip(alone).zip(lent) {
            let delay = lent.end_ns - alone.end_ns;
            prop_assert!(delay <= budget + 2 || delay <= delay_before);
            prop_assert!(lent.start_ns >= request.arrival_ns);
            delay_before = delay;
        }
    }

    #[test]
    fn time_is_neither_made_nor_lost(requests in any_requests(), budget in 0..100_000u64) {
        for policy in [Policy::Nothing, Policy::Idle, Policy::Refresh(budget)] {
            let found = played(&requests, policy, SMT);
            prop_assert!(found.requests_share <= 1.0 + 1e-9);
            prop_assert!(found.batch_share <= 1.0 + 1e-9);
            prop_assert!(found.beside_share <= found.batch_share.min(found.requests_share) + 1e-9);
            if policy == Policy::Idle {
                prop_assert!(requests.len() < 2 || (found.utilisation() - 1.0).abs() < 1e-9);
            }
        }
    }
}

#[test]
fn bolder_policies_use_more_and_cost_more() {
    let requests = poisson(0.5, 200_000, 3, true);
    let of = |policy| played(&requests, policy, SMT);
    let policies = [
        Policy::Nothing,
        Policy::Idle,
        Policy::Fixed(BUDGET_NS),
        Policy::Refresh(BUDGET_NS),
        Policy::Dynamic(BUDGET_NS),
    ];
    let found = policies.map(of);
    for pair in found.windows(2) {
        assert!(pair[0].utilisation() < pair[1].utilisation(), "{pair:?}");
        assert!(pair[0].p99_ns <= pair[1].p99_ns, "{pair:?}");
    }
    assert_eq!(found[0].p99_ns, found[1].p99_ns);
}

#[test]
fn on_one_cpu_leaving_late_is_all_that_lending_costs() {
    let requests = poisson(0.3, 200_000, 3, true);
    let model = Model {
        overlap_speed: 0.0,
        leave_ns: 5_000,
        wake_ns: 2_000,
    };
    let alone = played(&requests, Policy::Nothing, model);
    let lent = played(&requests, Policy::Idle, model);
    let (alone, p50) = (alone.p50_ns.expect("many"), lent.p50_ns.expect("many"));
    assert!(p50 > alone && p50 < alone + 10_000, "{alone} {p50}");
    assert!(lent.utilisation() > 0.97 && lent.utilisation() <= 1.0 + 1e-9);
}

#[test]
fn the_slo_is_held_and_more_is_used_than_by_idle_time() {
    let requests = poisson(0.4, 1_000_000, 3, true);
    let idle = played(&requests, Policy::Idle, SMT);
    let p99 = idle.p99_ns.expect("many");
    let slo = Slo {
        quantile: 0.99,
        limit_ns: p99 * 6 / 5,
    };
    let lent = played(&requests, Policy::Slo(slo), SMT);
    assert!(
        lent.p99_ns.is_some_and(|p99| p99 <= slo.limit_ns),
        "{lent:?}"
    );
    assert!(lent.utilisation() > idle.utilisation() + 0.01, "{lent:?}");
}

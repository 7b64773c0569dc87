//! Checks plans for chains on several CPUs: each CPU's slot has room for its callbacks in every
//! measured execution.
mod common;

use common::{callback, chain, model};
use onbeat_document::schema::CallbackType;
use onbeat_plan::request::CpuRequest;
use onbeat_plan::{plan, validate, Request, Strategy};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_callback_of_a_plan_over_several_cpus_runs_within_the_slot_of_its_cpu(
        cpus in prop::collection::vec(0u16..3, 2..7),
        runs in prop::collection::vec(prop::collection::vec(0.5f64..9.0, 7), 1..30),
        one_slot in any::<bool>(),
    ) {
        let topics: Vec<String> = (0..cpus.len()).map(|i| format!("/t{i}")).collect();
        let ids: Vec<String> = (0..cpus.len()).map(|i| match i {
            0 => "/n0:timer(100ms)".to_string(),
            i => format!("/n{i}:subscription(/t{})", i - 1),
        }).collect();
        let one = |i: usize| {
            let kind = if i == 0 { CallbackType::Timer } else { CallbackType::Subscription };
            let times: Vec<f64> = runs.iter().map(|r| r[i]).collect();
            callback(&ids[i], kind, &times, &[&topics[i]])
        };
        let lengths: Vec<f64> = runs.iter().map(|r| r[..cpus.len()].iter().sum()).collect();
        let ids_of: Vec<&str> = ids.iter().map(String::as_str).collect();
        let topics_of: Vec<&str> = topics.iter().map(String::as_str).collect();
        let m = model(
            (0..cpus.len()).map(one).collect(),
            vec![chain("chain-1", &ids_of, &topics_of, &lengths)],
        );
        let request = Request {
strategy: if one_slot { Strategy::ServerPerChain } else { Strategy::Bands(1) }, cpus: CpuRequest { of: ids.iter().cloned().zip(cpus.iter().copied()).collect(), middleware: Some(7),  ..CpuRequest::default() }, ..Request::default()};
        let made = plan(&m, &request).unwrap();
        prop_assert_eq!(validate(&made), Ok(()));
        for run in &runs {
            let mut at = 0.0;
            for (id, took) in ids.iter().zip(run) {
                let server = made.servers.iter().find(|s| s.callbacks.contains(id)).unwrap();
                let slot = server.slots_ms[0];
                let (start, end) = (slot.0 .0 as f64 / 1e6, slot.1 .0 as f64 / 1e6);
                // Each callback starts at its predecessor's output.
                prop_assert!(start <= at + 1e-6 && at + took <= end + 1e-6, "{id} from {at} for {took} in [{start}, {end}]");
                at += took;
            }
            prop_assert!(at <= made.promises.worst_ms.0 as f64 / 1e6 + 1e-6);
        }
        // A CPU has no slot while none of its callbacks can run.
        let first = |cpu: u16| cpus.iter().position(|&c| c == cpu).unwrap();
        for server in made.servers.iter().filter(|s| s.name.starts_with("gamma-")) {
            let best = |i: usize| runs.iter().map(|r| r[i]).fold(f64::MAX, f64::min);
            let before: f64 = (0..first(server.cpu)).map(|i| best(i) / 2.0).sum();
            let start = server.slots_ms[0].0 .0 as f64 / 1e6;
            prop_assert!(start <= before + 1e-6 && start > before - 0.11, "{start} {before}");
        }
    }
}

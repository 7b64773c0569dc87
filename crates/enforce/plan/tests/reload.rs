//! Compares pairs of plans: one replaces the other, or the difference is reported.

use onbeat_plan::reload::{differences, Difference};
use onbeat_plan::schema::{Hold, Ms, Overshoot, Slot};
use onbeat_plan::Plan;
use proptest::prelude::*;

const MS: u64 = 1_000_000;

fn plan() -> Plan {
    onbeat_plan::file::read(include_bytes!("golden/plan.yaml")).expect("a plan")
}

fn change(plan: &mut Plan, number: usize) -> bool {
    let server = number % plan.servers.len();
    match number % 17 {
        0 => plan.cycle_ms.0 += MS,
        1 => plan.origin += "x",
        2 => plan.chains[0].id += "x",
        3 => plan.chains[0].callbacks.push("/a:timer(1ms)".into()),
        4 => plan.servers[server].name += "x",
        // One server stays, because the other changes need one.
        5 if plan.servers.len() > 1 => drop(plan.servers.pop()),
        6 => plan.servers[server].cpu += 1,
        7 => plan.servers[server].priority = plan.servers[server].priority.wrapping_add(1),
        8 => plan.servers[server].callbacks.push("/a:timer(1ms)".into()),
        9 => match plan.servers[server].slots_ms.is_empty() {
            true => plan.servers[server].slots_ms.push(Slot(Ms(0), Ms(MS))),
            false => plan.servers[server].slots_ms.clear(),
        },
        10 => match plan.outputs[0].hold {
            Hold::Republish => plan.outputs[0].hold = Hold::PublisherThread,
            Hold::PublisherThread => plan.outputs[0].hold = Hold::Republish,
        },
        11 => drop(plan.inputs.pop()),
        12 => plan.middleware.priority -= 1,
        13 => match plan.overshoot {
            Overshoot::Stop => plan.overshoot = Overshoot::Drop,
            _ => plan.overshoot = Overshoot::Stop,
        },
        14 => {
            let slots = plan.servers.iter_mut().flat_map(|s| &mut s.slots_ms);
            slots.for_each(|s| s.1 .0 += number as u64);
            return true;
        }
        15 => {
            plan.promises.worst_ms.0 += MS;
            plan.strategy += "x";
            plan.assumes.push("x".into());
            return true;
        }
        _ => {
            plan.outputs[0].earliest_ms.0 += MS;
            return true;
        }
    }
    false
}

fn taken_over(running: &Plan, other: &Plan) -> Plan {
    let mut plan = running.clone();
    plan.strategy.clone_from(&other.strategy);
    plan.promises = other.promises.clone();
    plan.assumes.clone_from(&other.assumes);
    for (server, other) in plan.servers.iter_mut().zip(&other.servers) {
        if server.slots_ms.is_empty() == other.slots_ms.is_empty() {
            server.slots_ms.clone_from(&other.slots_ms);
        }
    }
    for (output, other) in plan.outputs.iter_mut().zip(&other.outputs) {
        output.earliest_ms = other.earliest_ms;
    }
    plan
}

proptest! {
    #[test]
    fn any_plan_replaces_a_running_one_completely_or_is_refused(numbers in prop::collection::vec(0usize..170, 0..6)) {
        let (running, mut new) = (plan(), plan());
        let changes: Vec<bool> = numbers.iter().map(|&n| change(&mut new, n)).collect();
        let may = !changes.contains(&false);
        let found = differences(&running, &new);
        if may {
            prop_assert_eq!(&found, &vec![]);
        }
        if found.is_empty() {
            prop_assert_eq!(taken_over(&running, &new), new.clone());
        } else {
            prop_assert_ne!(taken_over(&running, &new), new.clone());
        }
        prop_assert_eq!(found.is_empty(), differences(&new, &running).is_empty());
        prop_assert!(found.iter().all(|d| d.to_string().chars().count() <= 120));
    }
}

#[test]
fn each_difference_between_a_running_and_a_new_plan_is_reported() {
    let running = plan();
    let mut new = plan();
    new.cycle_ms = Ms(50 * MS);
    new.servers[0].cpu += 1;
    let found = differences(&running, &new);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(matches!(found[0], Difference::Cycle { new: Ms(n), .. } if n == 50 * MS));
    assert!(found[0]
        .to_string()
        .starts_with("the new plan's cycle is 50 ms, not "));
    assert!(
        found[1]
            .to_string()
            .ends_with("has another CPU in the new plan than in the running plan"),
        "{}",
        found[1]
    );
    for number in 0..14 {
        let mut new = plan();
        change(&mut new, number);
        assert_eq!(differences(&running, &new).len(), 1, "{number}");
    }
}

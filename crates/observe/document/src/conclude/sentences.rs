//! Whole sentences about a model: its assumptions and the limits of its recordings. Their wording
//! is part of the file format.

use super::alike::{in_plural, together, unite};
use super::graph::Graph;
use super::groups::{Criterion, Group, Groups};
use super::junctions;
use crate::evidence::{few, Evidence, Note};
use crate::schema::qos;
use crate::schema::{Assumed, Bracket, Edge, Run};
use crate::schema::{Junction, JunctionKind, JunctionState, Matching};
use crate::stated::StatedJunction;
use std::collections::BTreeSet;

pub(super) fn sentences(
    evidence: &Evidence,
    groups: &Groups,
    graph: &Graph,
    junctions: &[Junction],
) -> (Vec<String>, Vec<String>) {
    let mut assumptions = assumptions(evidence, groups, graph);
    assumptions.extend(of_open(graph, junctions));
    let mut coverage = coverage(evidence, graph);
    let mut notes = evidence.notes.clone();
    // The callback ran in another run.
    notes.retain(|note, _| !matches!(note, Note::Starved(id) if graph.callbacks.contains_key(id)));
    for said in unite(&notes) {
        let sentence = match (&said.note, said.note.subject()) {
            (Note::NodeName(node), _) => match of_guess(node, graph) {
                Some(sentence) => sentence,
                None => continue,
            },
            (note, Some(names)) if said.several => in_plural(of_note(note, said.count), names),
            (note, _) => of_note(note, said.count),
        };
        match is_assumption(&said.note) {
            true => assumptions.insert(sentence),
            false => coverage.insert(sentence),
        };
    }
    (
        assumptions.into_iter().collect(),
        coverage.into_iter().collect(),
    )
}

fn assumptions(evidence: &Evidence, groups: &Groups, graph: &Graph) -> BTreeSet<String> {
    let mut sentences: BTreeSet<String> = groups.iter().filter_map(of_group).collect();
    sentences.extend(groups.iter().filter_map(of_matching));
    sentences.extend(groups.doubts.iter().map(of_doubt));
    let assumed = graph.edges.values().filter_map(of_edge);
    sentences.extend(assumed);
    let shown = |id: &&String| graph.callbacks.contains_key(*id);
    let measured = evidence.unknown_periods.iter().filter(shown);
    let measured: Vec<&str> = measured.map(String::as_str).collect();
    if let Some(all) = together(&measured) {
        sentences.insert(format!(
            "The periods of {all} are measured: their timers were made before the recording."
        ));
        return sentences;
    }
    for id in measured {
        sentences.insert(format!(
            "The period of {id} is measured: its timer was made before the recording."
        ));
    }
    sentences
}

fn of_edge(e: &Edge) -> Option<String> {
    let (from, to) = (&e.from, &e.to);
    Some(match e.assumed? {
        Assumed::HandedOver => format!(
            "{from} is assumed to hand its work to {to}: {from} woke up or created the thread before {} executions. No event shows which data {from} handed over.",
            e.figures.taken
        ),
        Assumed::Stated => format!(
            "Data passes from {from} to {to} through memory, as stated with --link; no event shows this data."
        ),
        Assumed::Made => format!(
            "{from} makes the task {to}. It is assumed that nothing else makes this task."
        ),
        Assumed::Waited => format!(
            "{from} received a response for which {to} waited, and then {to} continued. {to} is assumed to use this response."
        ),
    })
}

fn coverage(evidence: &Evidence, graph: &Graph) -> BTreeSet<String> {
    let mut sentences: BTreeSet<String> = evidence.runs.values().flat_map(of_losses).collect();
    let mut callbacks = graph.callbacks.values();
    if callbacks.any(|c| c.bracket == Bracket::Inferred) {
        sentences.insert(
            "Callbacks marked 'inferred' have no events of their own at start and end. Their times come from the executor's calls around them.".into(),
        );
    }
    for (key, qos) in &evidence.endpoints {
        if qos.len() == qos::MOST {
            sentences.insert(format!(
                "{} has publishers or subscriptions with at least {} different QoS settings on {}. The model lists only {} of these settings.",
                key.node,
                qos::MOST,
                key.topic,
                qos::MOST
            ));
        }
    }
    sentences
}

fn of_group(group: &Group) -> Option<String> {
    let members: Vec<&str> = group.members.iter().map(String::as_str).collect();
    let (members, topic) = (members.join(" and "), &group.topic);
    let why = match group.criterion {
        Criterion::MessageFilters => return None,
        Criterion::Stated => {
            return Some(format!(
                "{members} wait for one another before {topic} is published, as stated with --junction."
            ));
        }
        Criterion::DataFlow => format!(
            "because each output followed a new input of each of these callbacks (confidence {:.2})",
            group.confidence
        ),
    };
    let doubt = match group.state {
        JunctionState::Ambiguous if group.without_open.kind == JunctionKind::And => format!(
            ". Perhaps only {} wait for one another: the last input before an output was never an input of the other callbacks. To settle this, record more runs, or state --junction '{}' and add, in brackets after the node, the inputs that wait",
            group.without_open.inputs.join(" and "),
            group.statement(JunctionKind::And)
        ),
        JunctionState::Ambiguous => format!(
            ". Only one of these callbacks publishes {topic}. Perhaps it publishes when its own input arrives, and only reads what the other callbacks stored. To settle this, state --junction '{}' (the callbacks wait) or --junction '{}' (they do not wait), or record more runs",
            group.statement(JunctionKind::And),
            group.statement(JunctionKind::Or)
        ),
        JunctionState::Decided | JunctionState::Stated => String::new(),
    };
    Some(format!(
        "{members} are assumed to wait for one another before {topic} is published, {why}{doubt}."
    ))
}

fn of_matching(group: &Group) -> Option<String> {
    let (node, topic) = (&group.node, &group.topic);
    let shown = group.criterion == Criterion::MessageFilters || group.chosen <= few(group.outputs);
    let stated = group.criterion == Criterion::Stated;
    if group.matching == Matching::Nearest && (shown || stated) {
        return Some(format!(
            "For each output on {topic}, {node} is assumed to join the items whose chains began nearest to one another in time, as a synchroniser by approximate time does. The recording does not show the time stamps in the messages."
        ));
    }
    (!shown).then(|| {
        let nearest = StatedJunction {
            matching: Matching::Nearest,
            ..group.statement(JunctionKind::And)
        };
        format!(
            "The data do not show which items {node} joins into {topic}: in {} of {} outputs there were several new items, and the latest are assumed. A synchroniser by approximate time may use earlier ones. If {node} does so, state it with --junction '{nearest}'.",
            group.chosen, group.outputs
        )
    })
}

fn of_open(graph: &Graph, junctions: &[Junction]) -> Option<String> {
    let open = |j: &&Junction| {
        j.criterion == junctions::SEVERAL_PUBLISHERS && j.state == JunctionState::Ambiguous
    };
    let open = junctions.iter().filter(open);
    let takers = open.filter_map(|j| graph.callbacks.get(&j.callback));
    let topics: BTreeSet<&str> = takers.map(|c| c.input.as_str()).collect();
    let topics: Vec<&str> = topics.into_iter().collect();
    let names = together(&topics).unwrap_or_else(|| topics.join(", "));
    (!topics.is_empty()).then(|| {
        format!(
            "Each subscription that publishes on {names} is assumed to publish when its own input arrives. The nodes of these subscriptions are unknown, so the subscriptions might wait for one another instead. To settle this, record the start of their processes."
        )
    })
}

fn of_doubt(group: &Group) -> String {
    let of = |publish: bool| -> String {
        let members = group.members.iter();
        let some = members.filter(|m| group.publishers.contains(*m) == publish);
        some.map(String::as_str).collect::<Vec<_>>().join(" and ")
    };
    let (publishing, others) = (of(true), of(false));
    format!(
        "{publishing} is assumed to publish {} when its own input arrives, and only to read what {others} stored. But each output followed a new input of each of these callbacks, so {publishing} might also wait for {others}. To settle this, state --junction '{}' (it does not wait) or --junction '{}' (it waits), or record more runs.",
        group.topic, group.statement(JunctionKind::Or), group.statement(JunctionKind::And)
    )
}

/// Describes a guessed node, which stands for all unknown nodes of a process, and counts its
/// callbacks.
fn of_guess(node: &str, graph: &Graph) -> Option<String> {
    let callbacks = graph.callbacks.values();
    let guessed = callbacks.filter(|c| c.node == node && !c.identity.is_known());
    let callbacks = match guessed.count() {
        0 => return None,
        1 => "one callback (marked ?)".to_string(),
        n => format!("{n} callbacks (marked ?), which may belong to several nodes"),
    };
    Some(format!(
        "{} It stands for {callbacks}.",
        of_note(&Note::NodeName(node.into()), 1)
    ))
}

fn of_losses(run: &Run) -> impl Iterator<Item = String> + '_ {
    run.lost.iter().filter(|l| *l.1 > 0).map(|(probe, count)| {
        format!(
            "In run {}, {count} events of kind {probe} were lost because the buffer was full. Counts, losses and latencies that depend on them are incomplete.",
            run.id
        )
    })
}

fn is_assumption(note: &Note) -> bool {
    use Note::{
        Assumed, CallerGuess, Cut, Input, Junction, NameRule, NodeName, Renamed, RingFound,
    };
    use Note::{RingName, TimerNode};
    matches!(
        note,
        Assumed(_)
            | CallerGuess(_)
            | Cut(_)
            | Input(_)
            | Junction(_)
            | NameRule(_)
            | NodeName(_)
            | Renamed(_)
            | RingFound(_)
            | RingName(_)
            | TimerNode(_)
    )
}

fn of_note(note: &Note, n: u64) -> String {
    let times = match n {
        1 => "once".to_string(),
        n => format!("{n} times"),
    };
    match note {
        Note::Aborted(s) => format!("{s} was started {times} without a recorded end (an exception, or lost events). These executions are not in its times."),
        Note::Assumed(sentence) | Note::Said(sentence) => sentence.clone(),
        Note::CallerGuess(s) => format!("Some requests of {s} could have come from several clients. The client that sent first is assumed."),
        Note::CallerUnknown(s) => format!("{s} was called {times} by a caller that was not recorded."),
        Note::Capped(s) => format!("The model does not list all paths to {s}. Executions on paths that are not listed were left out {times} (field 'dropped' of its chains). The times from each source to each sink ('end_to_end') include all paths."),
        Note::ClockStep => format!("The machine's clock was set {times}. Near each change, the release jitter of timers on system time was not measured."),
        Note::Cut(s) => format!("Parts of chains are chains of their own ({s}), as stated with --from and --to. Of each execution of the last callback of a part, only the first output counts."),
        Note::CutOff(s) => format!("{s} was cut off {times} by the end of its process. These executions are not in its times."),
        Note::Doubled(s) => format!("Items of the link {s} were received {times} at an end that had them already. No other count contains these items."),
        Note::Foreign(s) => format!("Messages on {s} came {times} from publishers outside the recording."),
        Note::HeldBack(s) => format!("A shaper held items of {s} back until their slots {times}. The times over {s} include this wait."),
        Note::HelperTime => format!("Threads that were made by callbacks' threads, but run no callbacks and publish nothing (a pool, OpenMP), used {:.1} ms of CPU time. It is unknown for which callbacks, so this time is missing in the callbacks' times.", n as f64 / 1e6),
        Note::Ignored(s) => format!("No chain goes through {s}, because it is infrastructure. {n} of its items were taken. Use --ignore to name other topics, or none."),
        Note::Input(s) => format!("Chains begin with {s}, whoever publishes it, as stated with --input. The latency of these chains counts from the publication of {s}."),
        Note::Link(s) => format!("The link '{s}' was not followed: at least one of its two ids is not the id of a callback that ran."),
        Note::Junction(s) => format!("The junction '{s}' is used as stated with --junction."),
        Note::LostSwitch => format!("A scheduler event was missing {times}. Executions near a gap have no execution time, and count as untimed."),
        Note::NameRule(s) => format!("Names of nodes are rewritten by the rule '{s}', as stated with --normalise."),
        Note::NoInput(s) => format!("The input '{s}' was not followed: no callback took anything from it."),
        Note::NodeName(s) => format!("The node {s} is named after its process: its own name was not recorded."),
        Note::OutOfOrder => format!("An event was recorded with an earlier time than the event before it. For such an event, onbeat uses the later of the two times. This happened {times}."),
        Note::Outside(s) => format!("{s} was published outside of callbacks {times}. Chains of these items begin with the callback that takes the items."),
        Note::Overtaken(s) => format!("A callback took {n} items of {s} and then a later item before it published anything. The earlier items count as taken, but no chain follows them."),
        Note::Shared(s) => format!("{s} ran {times} together with other callbacks of its action, which rclpy runs without a break between them. These executions are not in its times."),
        Note::PairsCapped => format!("There are more pairs of a source and a sink than the model keeps, so its field 'end_to_end' lacks {n} outputs. Name the ends that matter with --from and --to."),
        Note::PeriodChanged(s) => format!("The period of {s} was changed {times}. The model shows the period with which the timer was made, also in its name."),
        Note::Renamed(s) if n == 1 => format!("The node {s} has something in its own name that differs from run to run (a process id, an address, a counter). This part is left out."),
        Note::Renamed(s) => format!("{n} node names are combined as {s}: they differ only in parts that change from run to run (a process id, an address, a counter)."),
        Note::Reordered(s) => format!("{s} handled items out of order {times}: an execution ended after the execution of a later item. Each item keeps its own latency."),
        Note::RingFound(s) => format!("{s} is assumed to read the intra-process buffer of its topic: the buffer was made before the recording."),
        Note::RingName(s) => format!("{s} is named after the intra-process buffer that it reads: buffer and publisher were made before the recording, so the topic is unknown."),
        Note::Simulated(s) => format!("{s} ran {times} on simulated time, which passes at its own rate. These executions have no release jitter and no response time."),
        Note::Starved(s) if s.contains(":service(") => format!("{s} took nothing of {n} requests that its client sent. Its executor never ran it, or the middleware has not connected client and service."),
        Note::Starved(s) => format!("{s} took nothing of {n} items that were published on its topic. Its executor never ran it, or publisher and subscription do not match (domain, QoS)."),
        Note::Stolen => format!("The machine is a virtual one, and its host took {:.1} ms of CPU time from the observed threads. In callbacks, this time counts as preemption.", n as f64 / 1e6),
        Note::TimerNode(s) => format!("{s} is assumed to belong to the node whose topics it publishes."),
        Note::Unasked => format!("A response came {times} to a request from before the recording, or to a request of a callback that began before the recording. It is unknown which callback waited for the response. The execution that used the response is left out."),
        Note::Unbegun => format!("The first item that a thread took in the recording was left out {times}: a callback that began before the recording may have taken it."),
        Note::Undecided => format!("onbeat could not decide to which callback or caller an event belongs, because the event that shows this came too late. This happened {times}."),
        Note::UnknownCallback => format!("An unknown callback ran {times}: it was created before the recording."),
        Note::UnknownGoal(s) => format!("The recording does not show which goal of {s} was executed, or to which goal a result belongs. This happened {times}. No edge or chain leads to an execution whose goal is unknown."),
        Note::ModeUnseen(s) => format!("The mode {s} was asked for with --mode, and did not begin in {}.", if n == 1 { "one run".into() } else { format!("{n} runs") }),
        Note::UnknownMachine => format!("The state of a lifecycle node changed {times}. The node was created before the recording, so its name is unknown, and no mode began."),
        Note::UnknownHandle => format!("An unknown endpoint was used {times}: it was created before the recording, or the event of its creation was lost."),
        Note::UnknownWaiter(s) => format!("{s} was published {times} by one of several callbacks that waited for responses in the same node. It is unknown which callback published. No edge or chain begins with these publications, and the executions that published are missing in the times of all callbacks."),
        Note::Unscheduled(s) => format!("{s} ran {times} on threads without scheduler events. Its execution time then includes preemption."),
        Note::Unclaimed(s) => format!("Items of the link {s} were received {times} by a thread that ran no callback at this time. No edge or chain continues from these items."),
        Note::UnseenTime => format!("Executors used {:.1} ms of CPU time in all for work that the recording does not show.", n as f64 / 1e6),
        Note::UnseenWork => format!("Executors woke up {times} for work that the recording does not show: QoS events, guard conditions, other waitables, or no work at all."),
        Note::Unshown(s) => format!("{s} ran {times} at times that no event shows: on a thread of a pool, or beside callbacks that waited for other responses. These executions are not in its times."),
        Note::Unseen(s) => format!("{s} ran {times} on an input that the recording does not show. No edge or chain leads to these executions."),
    }
}

#[cfg(test)]
mod tests {
    use super::super::conclude;
    use super::super::testing::run;
    use super::*;

    #[test]
    fn notes_become_sentences_of_coverage_or_assumptions() {
        let mut evidence = run("r").with_callback("/a:timer(1ms)", 3);
        evidence.note(Note::Outside("/t".into()), 1);
        evidence.note(Note::UnknownHandle, 2);
        evidence.note(Note::Stolen, 1_500_000);
        evidence.note(Note::CallerGuess("/sv".into()), 4);
        evidence.note(Note::Said("Of the recorder.".into()), 1);
        let model = conclude(evidence);
        let begins = |sentences: &[String], words: &[&str]| {
            assert_eq!(sentences.len(), words.len(), "{sentences:#?}");
            for (sentence, words) in sentences.iter().zip(words) {
                assert!(sentence.starts_with(words), "{sentence}");
            }
        };
        begins(&model.assumptions, &["Some requests of /sv "]);
        begins(
            &model.coverage,
            &[
                "/t was published outside of callbacks once. ",
                "An unknown endpoint was used 2 times: ",
                "Of the recorder.",
                "The machine is a virtual one, and its host took 1.5 ms ",
            ],
        );
    }

    #[test]
    fn a_subscription_that_ran_in_another_run_is_not_starved() {
        let starved = |id: &str| {
            let mut evidence = run("r").with_callback("/a:subscription(/t)", 3);
            evidence.note(Note::Starved(id.into()), 12);
            conclude(evidence).coverage
        };
        assert_eq!(starved("/a:subscription(/t)"), [] as [&str; 0]);
        let said = "/b:subscription(/t) took nothing of 12 items ";
        assert!(starved("/b:subscription(/t)")[0].starts_with(said));
    }

    #[test]
    fn lost_events_are_reported_per_run_and_probe() {
        let mut evidence = run("r");
        let lost = [("take", 3), ("publish", 0)];
        let lost = lost.map(|(probe, n)| (probe.to_string(), n)).into();
        evidence.runs.get_mut("r").unwrap().lost = lost;
        let coverage = conclude(evidence).coverage;
        assert_eq!(coverage.len(), 1);
        assert!(coverage[0].starts_with("In run r, 3 events of kind take were lost"));
    }
}

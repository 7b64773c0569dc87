//! Combines the figures of callbacks and edges that become one: sums where they add up, nothing
//! where the parts do not determine the whole.

use onbeat_document::schema::{ByMode, CallbackFigures, ChainFigures, EdgeFigures, Share};

pub(crate) fn add_edge(all: &mut EdgeFigures, more: &EdgeFigures) {
    all.latency_ns.merge(&more.latency_ns);
    all.transport_ns.merge(&more.transport_ns);
    all.waiting_ns.merge(&more.waiting_ns);
    for (sum, more) in [
        (&mut all.published, more.published),
        (&mut all.taken, more.taken),
        (&mut all.lost, more.lost),
        (&mut all.overwritten, more.overwritten),
        (&mut all.unselected, more.unselected),
    ] {
        *sum = sum.saturating_add(more);
    }
}

/// Returns the figures of a collapsed part. Its inter-arrival times and release jitter are those of
/// its head, the callback that stands for the part. Its load, preemptions and sleeps are the sums
/// over all its callbacks. It has no execution times, because it is unknown which executions belong
/// together.
pub(crate) fn of_part<'f>(
    head: &CallbackFigures,
    all: impl Iterator<Item = &'f CallbackFigures>,
) -> CallbackFigures {
    let mut part = CallbackFigures {
        interarrival_ns: head.interarrival_ns.clone(),
        release_jitter_ns: head.release_jitter_ns.clone(),
        ..CallbackFigures::default()
    };
    for f in all {
        part.load += f.load;
        part.preemptions = part.preemptions.saturating_add(f.preemptions);
        part.blockings = part.blockings.saturating_add(f.blockings);
        part.observed_ns = part.observed_ns.max(f.observed_ns);
    }
    part
}

/// Returns the figures of a collapsed part for each mode. `head` has the figures of the callback
/// that stands for the part. A mode in which this callback did not run has only the load.
pub(crate) fn of_modes(
    head: &ByMode<CallbackFigures>,
    members: &[&ByMode<CallbackFigures>],
) -> ByMode<CallbackFigures> {
    let mut modes: Vec<&String> = members.iter().flat_map(|m| m.keys()).collect();
    modes.sort();
    modes.dedup();
    let none = CallbackFigures::default();
    let of = |mode: &String| {
        let all = members.iter().filter_map(|m| Some(&**m.get(mode)?));
        let head = head.get(mode).map_or(&none, |f| f);
        Box::new(of_part(head, all))
    };
    modes.into_iter().map(|m| (m.clone(), of(m))).collect()
}

/// Returns a chain's figures with new names for the elements of its latency (`shares`). Successive
/// elements that belong to one collapsed part become one element.
///
/// `names` has one name per element: alternately the name of a callback and of the topic after it.
pub(crate) fn of_chain(
    figures: &ChainFigures,
    parts: &[(usize, usize)],
    names: &[String],
) -> ChainFigures {
    let mut shares: Vec<Share> = Vec::new();
    for (i, (share, name)) in figures.shares.iter().zip(names).enumerate() {
        // Share 2i belongs to callback i, share 2i + 1 to the edge after it.
        let within = |(first, last): &&(usize, usize)| (2 * first + 1..=2 * last).contains(&i);
        match (parts.iter().find(within), shares.last_mut()) {
            (Some(_), Some(part)) => add_share(part, share),
            _ => shares.push(Share {
                name: name.clone(),
                ..share.clone()
            }),
        }
    }
    ChainFigures {
        shares,
        ..figures.clone()
    }
}

fn add_share(all: &mut Share, more: &Share) {
    let number = |share: &Share| share.sum_ns.parse::<u128>().unwrap_or(0);
    all.sum_ns = number(all).saturating_add(number(more)).to_string();
    all.mean_ns += more.mean_ns;
    all.fraction += more.fraction;
}

//! Rule: items wait at a synchroniser for items of its other inputs.

use super::{number, OnChain};
use crate::view::{part_ns, Part};
use crate::{Advice, Rule};
use onbeat_document::schema::CallbackType;
use onbeat_document::text::duration;

/// Finds the time that a chain waits at its synchronisers. An item arrives at a synchroniser and
/// waits for the last item with which it is joined.
pub(super) fn find(on: &OnChain<'_, '_>) -> Vec<Advice> {
    let mut found = Vec::new();
    for (i, id) in on.chain.callbacks.iter().enumerate().skip(1) {
        let Some(sync) = on
            .view
            .callback(id)
            .filter(|c| c.kind == CallbackType::Sync)
        else {
            continue;
        };
        let (from, topic) = (&on.chain.callbacks[i - 1], &on.chain.topics[i - 1]);
        let cost_ns = part_ns(on.chain, Part::Into(i));
        let Some(share) = on.share_if_large(cost_ns) else {
            continue;
        };
        let partners = on.view.into(sync).filter(|e| e.from != *from);
        found.push(Advice {
            rule: Rule::Synchroniser,
            chain: Some(on.place),
            subject: format!("{from} into {id}"),
            cost_ns: Some(cost_ns),
            share,
            finding: format!(
                "items of {from} wait {} at the synchroniser of {} for items of {}",
                duration(cost_ns),
                sync.node,
                super::first_three(partners, |e| e.from.clone())
            ),
            remedy: "shift the sources of the synchroniser's inputs so that their items arrive together, by a timer's phase or a \
                     sensor's trigger; or speed up the slower path"
                .to_owned(),
            evidence: vec![number(
                "shares.mean_ns",
                topic,
                cost_ns,
                on.chain.figures.executions,
            )],
        });
    }
    found
}

//! Renames the components that made callbacks wait.

use crate::names::{Kind, Names};
use onbeat_document::schema::{CallbackFigures, Cause, Component};

pub(crate) fn names(cause: &Cause) -> impl Iterator<Item = (Kind, &str)> {
    let by = &cause.by;
    let nodes = by.nodes.iter().map(|n| (Kind::Node, n.as_str()));
    let others = [&by.process, &by.thread]
        .into_iter()
        .filter(|n| !n.is_empty());
    nodes.chain(others.map(|n| (Kind::Thread, n.as_str())))
}

/// Returns the figures with renamed causes, sorted again. A process gets the same new name as a
/// thread of the same name.
pub(crate) fn renamed(figures: &CallbackFigures, names: &Names<'_>) -> CallbackFigures {
    let new = |cause: &Cause| {
        let by = &cause.by;
        let mut nodes: Vec<String> = by.nodes.iter().map(|n| names.node(n)).collect();
        nodes.sort();
        Cause {
            by: Component {
                kind: by.kind,
                nodes,
                process: names.thread(&by.process),
                thread: names.thread(&by.thread),
            },
            ..cause.clone()
        }
    };
    let mut causes: Vec<Cause> = figures.causes.iter().map(new).collect();
    causes.sort_by(|a, b| a.by.cmp(&b.by));
    CallbackFigures {
        causes,
        ..figures.clone()
    }
}

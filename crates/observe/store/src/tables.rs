//! Writes the figures of a model as Parquet tables: callbacks, edges and chains, one file of each
//! per model.
//!
//! A row describes one mode, or all modes if its mode is empty. An empty cell means that the figure
//! has no value.

use crate::columns::{self, Cell, CellType, Column};
use crate::id::Id;
use onbeat_document::schema::{
    ByMode, Callback, CallbackFigures, Chain, ChainFigures, Edge, EdgeFigures,
};
use onbeat_document::Dist;
use onbeat_document::Model;

pub(crate) const NAMES: [&str; 3] = ["callbacks", "edges", "chains"];

pub(crate) fn key(name: &str, model: Id) -> String {
    format!("tables/{name}/{model}.parquet")
}

pub(crate) fn of(id: Id, model: &Model) -> [(&'static str, Result<Vec<u8>, String>); 3] {
    let [callbacks, edges, chains] = NAMES;
    [
        (
            callbacks,
            table(id, model.callbacks.iter().flat_map(of_callback)),
        ),
        (edges, table(id, model.edges.iter().flat_map(of_edge))),
        (chains, table(id, model.chains.iter().flat_map(of_chain))),
    ]
}

/// A row of a table: the name, type and value of each column. All rows of a table have the same
/// columns.
type Cells = Vec<(String, CellType, Cell)>;

fn table(id: Id, rows: impl Iterator<Item = Cells>) -> Result<Vec<u8>, String> {
    let rows: Vec<Cells> = rows.collect();
    let mut head = vec![("model".to_string(), CellType::Text)];
    // A table without rows has only this column, because no query needs the others.
    let first: Vec<Column> = rows.first().map_or(Vec::new(), |row| {
        row.iter().map(|(n, h, _)| (n.clone(), *h)).collect()
    });
    head.extend(first);
    let cells = rows.into_iter().map(|row| {
        let id = Cell::Text(id.to_string());
        let cells = row.into_iter().map(|(_, _, cell)| cell);
        std::iter::once(id).chain(cells).collect::<Vec<Cell>>()
    });
    columns::write(&head, &cells.collect::<Vec<_>>()).map_err(|e| e.to_string())
}

fn text(name: &str, value: &str) -> (String, CellType, Cell) {
    (name.into(), CellType::Text, Cell::Text(value.into()))
}

fn int(name: &str, value: u64) -> (String, CellType, Cell) {
    (name.into(), CellType::Int, Cell::Int(value))
}

fn real(name: &str, value: f64) -> (String, CellType, Cell) {
    (name.into(), CellType::Real, Cell::Real(value))
}

fn dist(cells: &mut Cells, name: &str, dist: &Dist) {
    let some = dist.count() > 0;
    let mut ns = |what: &str, value: u64| {
        let cell = if some { Cell::Int(value) } else { Cell::None };
        cells.push((format!("{name}_{what}_ns"), CellType::Int, cell));
    };
    ns("min", dist.min());
    ns("p50", dist.quantile(0.5));
    ns("p99", dist.quantile(0.99));
    ns("max", dist.max());
    let mean = if some {
        Cell::Real(dist.mean())
    } else {
        Cell::None
    };
    cells.push((format!("{name}_mean_ns"), CellType::Real, mean));
    cells.push(int(&format!("{name}_count"), dist.count()));
}

fn modes<'a, F>(all: &'a F, each: &'a ByMode<F>) -> Vec<(&'a str, &'a F)> {
    let each = each.iter().map(|(mode, f)| (mode.as_str(), &**f));
    std::iter::once(("", all)).chain(each).collect()
}

fn of_callback(callback: &Callback) -> Vec<Cells> {
    let kind = serde_json::to_value(callback.kind);
    let kind = kind.ok().and_then(|k| k.as_str().map(String::from));
    let row = |(mode, figures): (&str, &CallbackFigures)| {
        let mut cells = vec![
            text("mode", mode),
            text("callback", &callback.id),
            text("node", &callback.node),
            text("type", kind.as_deref().unwrap_or("")),
            text("input", &callback.input),
            (
                "period_ns".into(),
                CellType::Int,
                callback.period_ns.map_or(Cell::None, Cell::Int),
            ),
            real("load", figures.load),
            int("preemptions", figures.preemptions),
            int("blockings", figures.blockings),
        ];
        dist(&mut cells, "exec", &figures.exec_ns);
        dist(&mut cells, "response", &figures.response_ns);
        dist(&mut cells, "interarrival", &figures.interarrival_ns);
        dist(&mut cells, "preempted", &figures.preempted_ns);
        dist(&mut cells, "blocked", &figures.blocked_ns);
        cells
    };
    let all = modes(&callback.figures, &callback.modes);
    all.into_iter().map(row).collect()
}

fn of_edge(edge: &Edge) -> Vec<Cells> {
    let row = |(mode, figures): (&str, &EdgeFigures)| {
        let mut cells = vec![
            text("mode", mode),
            text("from", &edge.from),
            text("to", &edge.to),
            text("topic", &edge.topic),
            int("published", figures.published),
            int("taken", figures.taken),
            int("lost", figures.lost),
            int("overwritten", figures.overwritten),
        ];
        dist(&mut cells, "latency", &figures.latency_ns);
        dist(&mut cells, "transport", &figures.transport_ns);
        dist(&mut cells, "waiting", &figures.waiting_ns);
        cells
    };
    let all = modes(&edge.figures, &edge.modes);
    all.into_iter().map(row).collect()
}

fn of_chain(chain: &Chain) -> Vec<Cells> {
    let row = |(mode, figures): (&str, &ChainFigures)| {
        let mut cells = vec![
            text("mode", mode),
            text("chain", &chain.id),
            text("from", chain.callbacks.first().map_or("", |c| c)),
            text("to", chain.callbacks.last().map_or("", |c| c)),
            int("callbacks", chain.callbacks.len() as u64),
            int("executions", figures.executions),
            int("lost", figures.lost),
            int("jitter_ns", figures.jitter_ns),
        ];
        dist(&mut cells, "latency", &figures.latency_ns);
        dist(&mut cells, "reaction", &figures.reaction_ns);
        cells
    };
    let all = modes(&chain.figures, &chain.modes);
    all.into_iter().map(row).collect()
}

//! The tables and their columns. `docs/tables.md` describes them; a test compares the two.

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The type of a column. It says how a number in a temporary file becomes the column's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    Time,
    SharedTime,
    Ns,
    Long,
    Number,
    Share,
    Flag,
    /// The id of a callback. Rows have the callback's number in the synthesis.
    Callback,
    /// The id of a callback that must be in the model. Rows of other callbacks are left out.
    Owner,
    /// The name of a topic or service. Rows have its number in the synthesis.
    Topic,
    /// The id of a chain. Rows have the number of a path. Rows of paths that are not chains are
    /// left out.
    Chain,
    Source,
    Word(&'static [&'static str]),
    /// The culprit of a stretch, as [`super::pass::culprit`] encodes it.
    Culprit,
    CulpritKind,
    /// A text. Rows have its number in [`super::pass::Pass`].
    Name,
    Text,
    Texts,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) ty: Type,
}

/// A kind of table with the timing of a trace.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    Callbacks,
    Chains,
    /// One row for each execution of a callback, with its times.
    Executions,
    /// One row for each item and each callback that takes it.
    Items,
    /// One row for each execution of a chain, with its latency.
    ChainExecutions,
    /// One row for each stretch of an execution of a chain, with its cause.
    Stretches,
    Threads,
    Processes,
    /// One row for each time that a thread had a CPU.
    Switches,
    /// One row with facts about the whole recording.
    Runs,
}

impl Table {
    /// All tables, in the order of the format document.
    pub const ALL: [Table; 10] = [
        Table::Callbacks,
        Table::Chains,
        Table::Executions,
        Table::Items,
        Table::ChainExecutions,
        Table::Stretches,
        Table::Threads,
        Table::Processes,
        Table::Switches,
        Table::Runs,
    ];

    /// Returns the table's name, for example `executions`. Its directory has the same name.
    pub fn name(self) -> &'static str {
        match self {
            Table::Callbacks => "callbacks",
            Table::Chains => "chains",
            Table::Executions => "executions",
            Table::Items => "items",
            Table::ChainExecutions => "chain_executions",
            Table::Stretches => "stretches",
            Table::Threads => "threads",
            Table::Processes => "processes",
            Table::Switches => "switches",
            Table::Runs => "runs",
        }
    }

    /// Returns the table with this name, or `None` if no table has it.
    pub fn of_name(name: &str) -> Option<Table> {
        Table::ALL.into_iter().find(|table| table.name() == name)
    }

    /// Returns the columns that follow `run` and `host`, which all tables have.
    pub(crate) fn columns(self) -> &'static [Column] {
        match self {
            Table::Callbacks => CALLBACKS,
            Table::Chains => CHAINS,
            Table::Executions => EXECUTIONS,
            Table::Items => ITEMS,
            Table::ChainExecutions => CHAIN_EXECUTIONS,
            Table::Stretches => STRETCHES,
            Table::Threads => THREADS,
            Table::Processes => PROCESSES,
            Table::Switches => SWITCHES,
            Table::Runs => RUNS,
        }
    }

    /// Returns the names of all columns of this table, in their order.
    pub fn column_names(self) -> impl Iterator<Item = &'static str> {
        let rest = self.columns().iter().map(|column| column.name);
        HEAD.into_iter().chain(rest)
    }

    pub(crate) fn schema(self) -> SchemaRef {
        let head = HEAD.map(|name| Field::new(name, DataType::Utf8, false));
        let rest = self.columns().iter().map(|column| {
            let required = matches!(column.ty, Type::Owner | Type::Chain | Type::Source);
            Field::new(column.name, column.ty.arrow(), !required)
        });
        Arc::new(Schema::new(
            head.into_iter().chain(rest).collect::<Vec<_>>(),
        ))
    }
}

/// The first columns of all tables.
const HEAD: [&str; 2] = ["run", "host"];

/// The columns of a table that an export writes.
#[derive(Debug, Clone)]
pub(crate) struct Shown {
    pub(crate) schema: SchemaRef,
    pub(crate) head: [bool; HEAD.len()],
    /// For each of [`Table::columns`]: whether the export writes it.
    pub(crate) rest: Vec<bool>,
}

impl Shown {
    /// Returns the columns of `table` whose names are in `names`, or all columns if `names` is empty.
    pub(crate) fn new(table: Table, names: &BTreeSet<String>) -> Shown {
        let is_shown = |name: &str| names.is_empty() || names.contains(name);
        let all = table.schema();
        let fields = all.fields().iter().filter(|field| is_shown(field.name()));
        Shown {
            schema: Arc::new(Schema::new(fields.cloned().collect::<Vec<_>>())),
            head: HEAD.map(is_shown),
            rest: table.columns().iter().map(|c| is_shown(c.name)).collect(),
        }
    }
}

impl Type {
    fn arrow(self) -> DataType {
        match self {
            Type::Time | Type::SharedTime | Type::Ns | Type::Long => DataType::Int64,
            Type::Number => DataType::Int32,
            Type::Share => DataType::Float64,
            Type::Flag => DataType::Boolean,
            Type::Texts => DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true))),
            _ => DataType::Utf8,
        }
    }
}

pub(crate) const ENDS: &[&str] = &[
    "shared",
    "unshown",
    "aborted",
    "cut_off",
    "unfinished",
    "missing_event",
];

pub(crate) const FATES: &[&str] = &["taken", "read", "lost", "overwritten"];

pub(crate) const KINDS: &[&str] = &[
    "runs",
    "library",
    "preempted",
    "queued",
    "sleeps",
    "executor",
    "transport",
    "inputs",
    "timer",
    "stolen",
    "unknown",
    "throttled",
    "held",
];

pub(crate) const REASONS: &[&str] = &[
    "lost_events",
    "missing_event",
    "no_cpu_time",
    "no_scheduler",
    "not_recorded",
    "short_history",
];

pub(crate) const POLICIES: &[&str] = &[
    "other", "fifo", "rr", "batch", "unknown", "idle", "deadline", "ext",
];

const fn column(name: &'static str, ty: Type) -> Column {
    Column { name, ty }
}

const CALLBACKS: &[Column] = &[
    column("callback", Type::Text),
    column("node", Type::Text),
    column("node_known", Type::Flag),
    column("type", Type::Text),
    column("input", Type::Text),
    column("caller", Type::Text),
    column("period_ns", Type::Ns),
    column("outputs", Type::Texts),
    column("symbol", Type::Text),
    column("end_inferred", Type::Flag),
    column("load", Type::Share),
];

const CHAINS: &[Column] = &[
    column("chain", Type::Text),
    column("source", Type::Text),
    column("sink", Type::Text),
    column("callbacks", Type::Texts),
    column("topics", Type::Texts),
    column("title", Type::Text),
    column("assumed", Type::Flag),
    column("ambiguous", Type::Flag),
];

const EXECUTIONS: &[Column] = &[
    column("callback", Type::Owner),
    column("start_ns", Type::Time),
    column("end_ns", Type::Time),
    column("exec_ns", Type::Ns),
    column("preempted_ns", Type::Ns),
    column("blocked_ns", Type::Ns),
    column("queued_ns", Type::Ns),
    column("reason", Type::Word(ENDS)),
    column("end_inferred", Type::Flag),
    column("scheduled", Type::Flag),
    column("preemptions", Type::Number),
    column("blockings", Type::Number),
    column("pid", Type::Number),
    column("tid", Type::Number),
    column("cpu", Type::Number),
    column("cpus", Type::Number),
    column("input", Type::Topic),
    column("input_published_ns", Type::SharedTime),
    column("outputs", Type::Number),
];

const ITEMS: &[Column] = &[
    column("topic", Type::Topic),
    column("publisher", Type::Callback),
    column("subscription", Type::Owner),
    column("published_ns", Type::SharedTime),
    column("source_ns", Type::SharedTime),
    column("available_ns", Type::Time),
    column("taken_ns", Type::Time),
    column("fate", Type::Word(FATES)),
    column("lost", Type::Flag),
    column("intra_process", Type::Flag),
    column("taken_pid", Type::Number),
    column("taken_tid", Type::Number),
];

const CHAIN_EXECUTIONS: &[Column] = &[
    column("chain", Type::Chain),
    column("execution", Type::Long),
    column("source", Type::Source),
    column("start_ns", Type::SharedTime),
    column("end_ns", Type::Time),
    column("latency_ns", Type::Ns),
    column("age_ns", Type::Ns),
];

const STRETCHES: &[Column] = &[
    column("chain", Type::Chain),
    column("execution", Type::Long),
    column("number", Type::Number),
    column("ns", Type::Ns),
    column("place", Type::Callback),
    column("kind", Type::Word(KINDS)),
    column("culprit_kind", Type::CulpritKind),
    column("culprit", Type::Culprit),
    column("during", Type::Word(KINDS)),
    column("during_culprit_kind", Type::CulpritKind),
    column("during_culprit", Type::Culprit),
    column("reason", Type::Word(REASONS)),
];

const THREADS: &[Column] = &[
    column("pid", Type::Number),
    column("tid", Type::Number),
    column("comm", Type::Name),
    column("observed", Type::Flag),
    column("policy", Type::Word(POLICIES)),
    column("kernel_priority", Type::Number),
    column("start_ns", Type::Time),
    column("end_ns", Type::Time),
    column("on_cpu_ns", Type::Ns),
    column("switches", Type::Long),
];

const PROCESSES: &[Column] = &[
    column("pid", Type::Number),
    column("program", Type::Text),
    column("distribution", Type::Text),
    column("middleware", Type::Text),
    column("nodes", Type::Texts),
    column("late", Type::Flag),
    column("start_ns", Type::Time),
    column("end_ns", Type::Time),
];

const SWITCHES: &[Column] = &[
    column("cpu", Type::Number),
    column("pid", Type::Number),
    column("tid", Type::Number),
    column("start_ns", Type::Time),
    column("end_ns", Type::Time),
    column("waited_ns", Type::Ns),
    column("preempted", Type::Flag),
    column("prev_tid", Type::Number),
    column("next_tid", Type::Number),
];

const RUNS: &[Column] = &[
    column("boot", Type::Text),
    column("mode", Type::Text),
    column("distributions", Type::Texts),
    column("kernel", Type::Text),
    column("recorder", Type::Text),
    column("complete", Type::Flag),
    column("start_realtime_ns", Type::Time),
    column("start_ns", Type::Time),
    column("duration_ns", Type::Ns),
    column("events", Type::Long),
    column("lost_events", Type::Long),
    column("coverage", Type::Texts),
];

//! Makes workers from a program: puts tasks on their threads, and connects them within and between
//! threads.

use super::edge::Edge;
use super::program::{Connection, Program};
use super::state::ExecutorState;
use super::task::ErasedTask;
use super::worker::{LocalOutput, Outputs, RemoteInput, Worker, WorkerTask};
use std::sync::Arc;

type Place = (usize, usize);

/// Distributes a program's tasks over workers. `order` contains the tasks of each thread.
/// `priorities` has one number per task if the executor runs by priority.
pub(super) fn wire(
    program: Program,
    order: &[Vec<usize>],
    priorities: Option<&[u32]>,
) -> (Arc<ExecutorState>, Vec<Worker>) {
    let count = program.tasks.len();
    let is_timed = priorities.is_some();
    let mut tasks = distribute(program.tasks, order, priorities);
    let places = places(order, count);
    let edges = connect(&program.connections, &places, &mut tasks, is_timed);
    let state = Arc::new(ExecutorState::new(program.wakers, edges, count));
    let workers = tasks.into_iter().enumerate();
    let workers = workers
        .map(|(number, tasks)| Worker::new(number, tasks, Arc::clone(&state), is_timed))
        .collect();
    (state, workers)
}

fn places(order: &[Vec<usize>], count: usize) -> Vec<Place> {
    let mut places = vec![(0, 0); count];
    for (thread, tasks) in order.iter().enumerate() {
        for (position, &task) in tasks.iter().enumerate() {
            places[task] = (thread, position);
        }
    }
    places
}

fn distribute(
    tasks: Vec<ErasedTask>,
    order: &[Vec<usize>],
    priorities: Option<&[u32]>,
) -> Vec<Vec<WorkerTask>> {
    let mut tasks: Vec<Option<ErasedTask>> = tasks.into_iter().map(Some).collect();
    let mut worker_task = |&id: &usize| {
        let task = tasks[id].take().expect("each task is on one thread");
        WorkerTask {
            id,
            core: task.core,
            code: task.code,
            is_fed: task.is_fed,
            is_conditional: task.is_conditional,
            inputs: Vec::new(),
            outputs: Outputs::default(),
            priority: priorities.map_or(0, |p| p[id]),
            ready_since: None,
        }
    };
    let of_thread = |ids: &Vec<usize>| ids.iter().map(&mut worker_task).collect();
    order.iter().map(of_thread).collect()
}

fn connect(
    connections: &[Connection],
    places: &[Place],
    tasks: &mut [Vec<WorkerTask>],
    is_timed: bool,
) -> Vec<Edge> {
    let mut edges = Vec::new();
    for c in connections {
        let ((from_thread, from), (to_thread, to)) = (places[c.from], places[c.to]);
        if from_thread == to_thread {
            let outputs = &mut tasks[from_thread][from].outputs;
            outputs.local.push(LocalOutput {
                task: to,
                source: c.source,
            });
            continue;
        }
        let receiver = &mut tasks[to_thread][to];
        let wakes = receiver.core.is_triggered_by(c.input);
        receiver
            .inputs
            .push(RemoteInput::new(edges.len(), c.source));
        let outputs = &mut tasks[from_thread][from].outputs;
        outputs.remote.push(edges.len());
        if wakes && !outputs.wakes.contains(&to_thread) {
            outputs.wakes.push(to_thread);
        }
        edges.push(Edge::new(is_timed, wakes));
    }
    edges
}

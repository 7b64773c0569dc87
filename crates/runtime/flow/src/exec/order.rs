//! Orders tasks: finds circles among connections, and computes list schedules.

/// Finds a circle among tasks. `followers` lists, for each task, the indices of the tasks that take
/// its output. Returns the tasks along the circle, with the first task again at the end.
pub(super) fn circle(followers: &[Vec<usize>]) -> Option<Vec<usize>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Visit {
        Unvisited,
        OnPath,
        Done,
    }
    let mut visits = vec![Visit::Unvisited; followers.len()];
    for root in 0..followers.len() {
        if visits[root] != Visit::Unvisited {
            continue;
        }
        visits[root] = Visit::OnPath;
        // Depth first: the path from the root, and for each task the next follower to visit.
        let mut path = vec![(root, 0)];
        while let Some((task, next)) = path.last_mut() {
            let Some(&follower) = followers[*task].get(*next) else {
                visits[*task] = Visit::Done;
                path.pop();
                continue;
            };
            *next += 1;
            match visits[follower] {
                Visit::Done => {}
                Visit::Unvisited => {
                    visits[follower] = Visit::OnPath;
                    path.push((follower, 0));
                }
                Visit::OnPath => {
                    let from = path.iter().position(|p| p.0 == follower)?;
                    let mut circle: Vec<usize> = path[from..].iter().map(|p| p.0).collect();
                    circle.push(follower);
                    return Some(circle);
                }
            }
        }
    }
    None
}

pub(super) struct Job {
    pub(super) cost_ns: u64,
    pub(super) thread: Option<usize>,
    pub(super) followers: Vec<usize>,
    pub(super) predecessors: Vec<usize>,
}

/// Returns, for each task, the cost in ns of the most expensive path from this task to a task
/// without followers. The costs of both tasks are included. The connections must have no circle.
fn path_costs_ns(jobs: &[Job]) -> Vec<u64> {
    let mut costs_ns = vec![0u64; jobs.len()];
    let mut open: Vec<usize> = jobs.iter().map(|j| j.followers.len()).collect();
    let mut done: Vec<usize> = (0..jobs.len()).filter(|&t| open[t] == 0).collect();
    while let Some(task) = done.pop() {
        let behind = jobs[task].followers.iter().map(|&f| costs_ns[f]).max();
        costs_ns[task] = jobs[task].cost_ns.saturating_add(behind.unwrap_or(0));
        for &before in &jobs[task].predecessors {
            open[before] -= 1;
            if open[before] == 0 {
                done.push(before);
            }
        }
    }
    costs_ns
}

/// Computes a list schedule: the task with the longest path to a task without followers comes
/// first, on the thread where it completes earliest. Returns the tasks of each thread in order.
pub(super) fn list_schedule(jobs: &[Job], threads: usize) -> Vec<Vec<usize>> {
    let path_costs_ns = path_costs_ns(jobs);
    let mut order = vec![Vec::new(); threads];
    let mut free_ns = vec![0u64; threads];
    let mut end_ns: Vec<Option<u64>> = vec![None; jobs.len()];
    let mut thread_of = vec![0; jobs.len()];
    for _ in jobs {
        let is_open = |&t: &usize| {
            end_ns[t].is_none() && jobs[t].predecessors.iter().all(|&b| end_ns[b].is_some())
        };
        let first = |&t: &usize| (std::cmp::Reverse(path_costs_ns[t]), t);
        let Some(task) = (0..jobs.len()).filter(is_open).min_by_key(first) else {
            break;
        };
        let job = &jobs[task];
        let ready_ns = job.predecessors.iter().filter_map(|&b| end_ns[b]).max();
        let start_ns = |thread: usize| ready_ns.unwrap_or(0).max(free_ns[thread]);
        // Among equal threads, that of the last predecessor saves a hand-over.
        let last = job.predecessors.iter().max_by_key(|&&b| end_ns[b]);
        let is_other = |thread: usize| last.is_some_and(|&b| thread_of[b] != thread);
        let thread = job.thread.unwrap_or_else(|| {
            (0..threads)
                .min_by_key(|&t| (start_ns(t), is_other(t), t))
                .unwrap_or(0)
        });
        let end = start_ns(thread).saturating_add(job.cost_ns);
        (end_ns[task], free_ns[thread], thread_of[task]) = (Some(end), end, thread);
        order[thread].push(task);
    }
    order
}

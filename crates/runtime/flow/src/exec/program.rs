//! The tasks of an executor and their connections, before they are on threads.

use super::dot::Arrow;
use super::options::TaskError;
use super::task::ErasedTask;
use super::thread::ThreadOptions;
use crate::wait::Waker;

/// The identity of a task of an executor with several threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub(crate) usize);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Connection {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) input: usize,
    pub(crate) source: usize,
}

pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) tasks: Vec<ErasedTask>,
    pub(crate) connections: Vec<Connection>,
    pub(crate) threads: Vec<ThreadOptions>,
    pub(crate) wakers: Vec<Waker>,
}

impl Program {
    pub(crate) fn new(name: &str, threads: Vec<ThreadOptions>) -> Program {
        Program {
            name: name.into(),
            tasks: Vec::new(),
            connections: Vec::new(),
            wakers: threads.iter().map(|_| Waker::new()).collect(),
            threads,
        }
    }

    pub(crate) fn add(&mut self, task: ErasedTask) -> TaskId {
        self.tasks.push(task);
        TaskId(self.tasks.len() - 1)
    }

    pub(crate) fn connect(
        &mut self,
        from: TaskId,
        to: TaskId,
        input: usize,
    ) -> Result<(), TaskError> {
        self.tasks[to.0].core.check_input(input)?;
        let name = self.tasks[from.0].core.name.clone();
        let receiver = &mut self.tasks[to.0].core;
        let source = receiver.connect(&self.name, &name, input);
        self.connections.push(Connection {
            from: from.0,
            to: to.0,
            input,
            source,
        });
        Ok(())
    }

    pub(crate) fn arrows(&self) -> impl Iterator<Item = Arrow> + '_ {
        self.connections.iter().map(|c| Arrow {
            from: c.from,
            to: c.to,
            input: c.input,
        })
    }
}

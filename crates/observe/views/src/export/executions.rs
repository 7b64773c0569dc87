//! Exports the executions of a recording as a comma-separated table, one line per execution, with
//! times in ns.

use super::csv::text;
use super::perfetto::Names;
use onbeat_document::schema::Run;
use onbeat_synth::observe::Observation;
use onbeat_synth::{Synth, SynthOptions};
use onbeat_trace::Event;
use std::io::{self, Write};

/// Writes a table with one line for each execution, in the order in which the executions end. The
/// caller must first find the ids of the callbacks in a pass over the same events (see
/// [`super::perfetto::names`]).
pub struct Executions<W: Write> {
    out: W,
    names: Names,
    synth: Synth,
    rows: u64,
}

impl<W: Write> Executions<W> {
    /// Begins the table with its header line.
    pub fn new(mut out: W, names: Names, run: Run) -> io::Result<Self> {
        let mut synth = Synth::new(SynthOptions::new(run));
        synth.observe();
        write!(out, "callback,pid,tid,start_ns,end_ns,exec_ns\r\n")?;
        Ok(Executions {
            out,
            names,
            synth,
            rows: 0,
        })
    }

    /// Takes the next event, and writes a line for each execution that ends with it. Events must
    /// come in order of time.
    pub fn push(&mut self, event: &Event) -> io::Result<()> {
        self.synth.push(event);
        self.flush()
    }

    /// Ends the table and returns the number of executions. Executions that had not ended at the
    /// end of the recording have no line.
    pub fn finish(mut self) -> io::Result<u64> {
        self.out.flush()?;
        Ok(self.rows)
    }

    fn flush(&mut self) -> io::Result<()> {
        for observation in self.synth.drain_observations() {
            let Observation::Execution {
                callback,
                pid,
                tid,
                start_ns,
                end_ns,
                exec_ns,
            } = observation
            else {
                continue;
            };
            // A callback without a name is internal to onbeat and in no model.
            let Some(name) = self.names.of(callback) else {
                continue;
            };
            self.rows += 1;
            let name = text(name);
            let exec_ns = exec_ns.map_or_else(String::new, |ns| ns.to_string());
            write!(
                self.out,
                "{name},{pid},{tid},{start_ns},{end_ns},{exec_ns}\r\n"
            )?;
        }
        Ok(())
    }
}

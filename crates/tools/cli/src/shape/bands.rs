//! Writes the bands that followed the load, as JSON and as CSV.

use onbeat_plan::schema::{Ms, Slot};
use onbeat_shape::Adapted;
use onbeat_terminal::files;
use onbeat_terminal::CliError;
use serde_json::{json, Value};
use std::path::Path;

pub(super) fn json(adapted: &Adapted) -> Value {
    let sets = adapted.bands.iter().map(|set| {
        let slots: Vec<_> = set.slots.iter().map(|&Slot(Ms(s), Ms(e))| [s, e]).collect();
        json!({"from_ns": set.from_ns, "reason": set.reason, "text": set.sentence, "slots_ns": slots})
    });
    json!({"moves": adapted.moves, "not_kept": adapted.forgotten, "bands": sets.collect::<Vec<_>>()})
}

pub(super) fn write(path: &Path, adapted: &Adapted) -> Result<(), CliError> {
    files::write_whole(path, |out| {
        writeln!(out, "from_ns,reason,band,start_ns,end_ns")?;
        for set in &adapted.bands {
            for (number, &Slot(Ms(start), Ms(end))) in set.slots.iter().enumerate() {
                let (from, reason) = (set.from_ns, set.reason);
                writeln!(out, "{from},{reason},{},{start},{end}", number + 1)?;
            }
        }
        Ok(())
    })
}

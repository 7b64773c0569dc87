//! Attaches the BPF programs for the kernel's tracepoints.

use super::RecordError;
use crate::kernel::Kernel;
use crate::probes::{KernelProbe, KERNEL_PROBES};
use libbpf_rs::Link;
use onbeat_trace::manifest::ProbeInfo;

const REQUIRED: &str = "sched_switch";

pub struct Tracepoints(Vec<(ProbeInfo, Option<Link>)>);

impl Tracepoints {
    pub fn attach(kernel: &Kernel) -> Result<Tracepoints, RecordError> {
        let rows = KERNEL_PROBES.iter();
        rows.map(|row| attach(kernel, row))
            .collect::<Result<_, _>>()
            .map(Tracepoints)
    }

    pub fn report(&self) -> impl Iterator<Item = ProbeInfo> + '_ {
        self.0.iter().map(|(info, _)| info.clone())
    }
}

fn attach(
    kernel: &Kernel,
    row: &'static KernelProbe,
) -> Result<(ProbeInfo, Option<Link>), RecordError> {
    let (link, error) = match kernel.attach_tracepoint(row.program) {
        Ok(link) => (Some(link), None),
        Err(reason) if row.name == REQUIRED => {
            return Err(RecordError::Tracepoint {
                name: row.name,
                reason,
            })
        }
        Err(reason) => (None, Some(reason)),
    };
    let info = ProbeInfo {
        name: row.name.into(),
        library: "kernel".into(),
        symbol: row.name.into(),
        placement: "tracepoint".into(),
        attached: link.is_some(),
        consequence: error.is_some().then(|| row.consequence.into()),
        error,
        ..ProbeInfo::default()
    };
    Ok((info, link))
}

//! The CAN buses that a replay plays on, as far as their bitrates are known, and their load.

use super::options::Args;
use onbeat_document::text::duration;
use onbeat_replay::bus::device::Device;
use onbeat_replay::bus::{stated, BusFigures, Meter};
use onbeat_replay::route::Target;

pub struct Buses {
    pub meters: Vec<Meter>,
    pub of_stream: Vec<Option<usize>>,
}

impl Buses {
    pub fn of(args: &Args, targets: &[Target]) -> Buses {
        let mut buses = Buses {
            meters: Vec::new(),
            of_stream: Vec::new(),
        };
        let mut names: Vec<&str> = Vec::new();
        for target in targets {
            let Target::Can(name) = target else {
                buses.of_stream.push(None);
                continue;
            };
            let known = names.iter().position(|known| known == name);
            let speed = || Device::of(name).ok().and_then(|device| device.speed);
            let added = known.or_else(|| {
                let speed = stated(&args.bitrate, name).or_else(speed)?;
                names.push(name);
                buses.meters.push(Meter::new(name, speed));
                Some(names.len() - 1)
            });
            buses.of_stream.push(added);
        }
        buses
    }
}

pub fn load(bus: &BusFigures) -> String {
    let mean = bus.load.map_or(String::new(), |load| {
        format!("{:.1} % on average, ", load * 100.0)
    });
    format!(
        "bus load of {} at {}: {mean}{:.1} % in the busiest 100 ms, which end {} after the first item",
        bus.interface,
        bus.speed(),
        bus.peak_load * 100.0,
        duration(bus.peak_at_ns as f64),
    )
}

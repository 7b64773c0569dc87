//! How to measure, so that every experiment does it alike: interleaved arms, exact statistics,
//! programs under measurement, recordings, probes.
pub mod arms;
pub mod ctf;
pub mod generate;
pub mod layers;
pub mod native;
pub mod peer;
pub mod perf_events;
pub mod recorder;
pub mod ros;
pub mod stats;
pub mod uprobe;

//! The means of measurement that experiments share: interleaved arms, exact statistics, peers and
//! their builds, recordings, probes, hosts and packet capture.
pub mod arms;
pub mod capture;
pub mod ctf;
pub mod floor;
pub mod generate;
pub mod hosts;
pub mod layers;
pub mod middleware;
pub mod native;
pub mod peer;
pub mod perf_events;
pub mod recorder;
pub mod ros;
pub mod run;
pub mod samples;
pub mod stats;
pub mod streams;
pub mod transport;
pub mod uprobe;

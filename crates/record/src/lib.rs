//! eBPF probes and recorder for unmodified ROS 2 systems.
pub mod elf;
pub mod kinds;
pub mod placement;
pub mod probes;
pub mod bpf;
pub mod decode;
pub mod late;
pub mod privilege;
pub mod proc;

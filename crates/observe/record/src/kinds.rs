//! Kinds of ring buffer records, from the list that the BPF programs include.
include!(concat!(env!("OUT_DIR"), "/kinds.rs"));

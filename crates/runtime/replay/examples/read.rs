//! Reads recordings as one, and prints the number of items, the speed, the damage and a checksum:
//! `cargo run --release -p onbeat-replay --example read RECORDING...`

use onbeat_replay::source;
use std::path::Path;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let start = Instant::now();
    let opened: Result<Vec<_>, _> = std::env::args()
        .skip(1)
        .map(|path| source::open(Path::new(&path)))
        .collect();
    let mut source = source::merged(opened?, false)?;
    let surveyed = start.elapsed();
    let (mut items, mut bytes, mut checksum) = (0u64, 0u64, Checksum(0xcbf2_9ce4_8422_2325));
    let names: Vec<Vec<u8>> = source
        .streams()
        .iter()
        .map(|stream| stream.name.clone().into_bytes())
        .collect();
    let check = std::env::var_os("CHECKSUM").is_some();
    let mut payload = Vec::new();
    while let Some(stamp) = source.next(&mut payload)? {
        items += 1;
        bytes += payload.len() as u64;
        if check {
            checksum.add(&stamp.time_ns.to_le_bytes());
            checksum.add(&names[stamp.stream.0 as usize]);
            checksum.add(&payload);
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{items} items, {bytes} bytes in {seconds:.3} s ({:.3} s survey): {:.0} items/s, {:.0} MB/s, checksum {:016x}",
        surveyed.as_secs_f64(),
        items as f64 / seconds,
        bytes as f64 / seconds / 1e6,
        checksum.0
    );
    for sentence in source.damage() {
        println!("{sentence}");
    }
    Ok(())
}

struct Checksum(u64);

impl Checksum {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

//! A network in two parts, as Figure 5.15's: what leaves the first is as large as there (76 x 76 x
//! 256 numbers, 5.64 MiB). The weights are seeded: its time is measured, not what it sees.

/// Places of the feature map.
const PLACES: usize = 76 * 76;
/// Channels of the map that leaves.
const WIDE: usize = 256;
/// Channels within each part.
const NARROW: usize = 32;
/// Bytes that leave the first part.
pub const BYTES: usize = PLACES * WIDE * 4;

/// One part: a convolution of 1 x 1 in each place.
pub struct Part {
    weights: Vec<f32>,
    inside: Vec<f32>,
}

impl Part {
    /// Seeded weights and input.
    pub fn new(seed: u64) -> Part {
        let mut state = seed;
        let mut number = move || {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
        };
        Part {
            weights: (0..NARROW * WIDE).map(|_| number()).collect(),
            inside: (0..PLACES * NARROW).map(|_| number()).collect(),
        }
    }

    /// The first part: writes the map that leaves.
    pub fn forward(&self, map: &mut [u8]) {
        let mut row = [0f32; WIDE];
        for (place, out) in self
            .inside
            .chunks_exact(NARROW)
            .zip(map.chunks_exact_mut(WIDE * 4))
        {
            row.fill(0.0);
            for (value, weights) in place.iter().zip(self.weights.chunks_exact(WIDE)) {
                for (sum, weight) in row.iter_mut().zip(weights) {
                    *sum += value * weight;
                }
            }
            for (bytes, sum) in out.chunks_exact_mut(4).zip(&row) {
                bytes.copy_from_slice(&sum.max(0.0).to_le_bytes());
            }
        }
    }

    /// The second part: reads the map; the sum of what it finds, so that nothing is left out.
    pub fn backward(&mut self, map: &[u8]) -> f32 {
        let mut total = 0.0;
        for (place, row) in self
            .inside
            .chunks_exact_mut(NARROW)
            .zip(map.chunks_exact(WIDE * 4))
        {
            for (sum, weights) in place.iter_mut().zip(self.weights.chunks_exact(WIDE)) {
                let mut parts = [0f32; 8];
                for (eight, weights) in row.chunks_exact(32).zip(weights.chunks_exact(8)) {
                    for (i, part) in parts.iter_mut().enumerate() {
                        let bytes = [
                            eight[4 * i],
                            eight[4 * i + 1],
                            eight[4 * i + 2],
                            eight[4 * i + 3],
                        ];
                        *part += f32::from_le_bytes(bytes) * weights[i];
                    }
                }
                *sum = parts.iter().sum::<f32>().max(0.0);
                total += *sum;
            }
        }
        total
    }
}

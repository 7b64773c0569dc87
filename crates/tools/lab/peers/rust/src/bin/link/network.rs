//! A neural network in two parts, as in Figure 5.15 of the thesis.
//!
//! The map between the parts has the same size (76 x 76 x 256 numbers, 5.64 MiB). The weights are
//! random: only the execution time matters, not the result.

const PLACES: usize = 76 * 76;
const WIDE: usize = 256;
const NARROW: usize = 32;
/// The size in bytes of the data (feature map) that the first part of the neural network sends to
/// the second part.
pub const BYTES: usize = PLACES * WIDE * 4;

pub struct Part {
    weights: Vec<f32>,
    inside: Vec<f32>,
}

impl Part {
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

    /// Computes the second part of the neural network from the feature map `map`. Returns a sum
    /// over the result, so that the compiler does not remove the computation.
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

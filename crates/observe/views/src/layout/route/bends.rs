//! Places the bends of wires between two ranks. Each net has a vertical line, and their order keeps
//! crossings few.

pub(super) struct Passage {
    pub(super) net: usize,
    pub(super) from: f64,
    pub(super) to: Vec<f64>,
}

impl Passage {
    fn span(&self) -> (f64, f64) {
        self.to
            .iter()
            .fold((self.from, self.from), |(a, b), &y| (a.min(y), b.max(y)))
    }

    fn is_straight(&self) -> bool {
        let (a, b) = self.span();
        b - a < 1.0
    }

    /// Returns the key for the initial order of the bends from left to right. Wires that go down
    /// come first, beginning with the lowest start. Wires that go up follow, beginning with the
    /// highest start.
    fn first_guess(&self) -> f64 {
        let mean = self.to.iter().sum::<f64>() / self.to.len().max(1) as f64;
        if mean < self.from {
            self.from
        } else {
            -self.from
        }
    }

    /// Returns the cost of placing the bend of `self` to the left of the bend of `other`. The cost
    /// is a weighted count of crossings and of wires that would overlap.
    fn left_of(&self, other: &Passage) -> usize {
        let inside = |y: f64, (a, b): (f64, f64)| y > a + 1.0 && y < b - 1.0;
        self.to.iter().filter(|&&y| inside(y, other.span())).count()
            + usize::from(inside(other.from, self.span()))
            + 4 * self
                .to
                .iter()
                .filter(|&&y| (y - other.from).abs() < 4.0)
                .count()
    }
}

pub(super) fn bends(passages: &[Passage]) -> (Vec<usize>, usize) {
    let order = order(passages);
    let mut bend = vec![0; passages.len()];
    let mut count = 0;
    for (k, &i) in order.iter().enumerate() {
        let (a, b) = passages[i].span();
        let beside = order[..k].iter().filter(|&&j| {
            let (c, d) = passages[j].span();
            c < b + 8.0 && d > a - 8.0
        });
        bend[i] = beside.map(|&j| bend[j] + 1).max().unwrap_or(0);
        count = count.max(bend[i] + 1);
    }
    (bend, count)
}

fn order(passages: &[Passage]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..passages.len())
        .filter(|&i| !passages[i].is_straight())
        .collect();
    order.sort_by(|&a, &b| {
        let key = |i: usize| passages[i].first_guess();
        key(a).total_cmp(&key(b)).then(a.cmp(&b))
    });
    // Neighbours swap while that lowers the cost. The rounds are limited for very full channels.
    for _ in 0..order.len().min(50) {
        let mut changed = false;
        for k in 1..order.len() {
            let (a, b) = (&passages[order[k - 1]], &passages[order[k]]);
            if b.left_of(a) < a.left_of(b) {
                order.swap(k - 1, k);
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passage(from: f64, to: &[f64]) -> Passage {
        Passage {
            net: 0,
            from,
            to: to.to_vec(),
        }
    }

    #[test]
    fn bends_are_ordered_so_that_wires_do_not_cross() {
        // Both go down, so the lower one bends first.
        let both_down = [passage(0.0, &[50.0]), passage(20.0, &[70.0])];
        assert_eq!(bends(&both_down), (vec![1, 0], 2));
        // Distant passages share a position, and a straight one needs none.
        let apart = [
            passage(0.0, &[50.0]),
            passage(100.0, &[150.0]),
            passage(60.0, &[60.0]),
        ];
        assert_eq!(bends(&apart), (vec![0, 0, 0], 1));
    }
}

//! Arbitrary events of every kind, for property tests.
use onbeat_trace::table::{self, FieldSource, KINDS};
use onbeat_trace::{Event, Name};
use proptest::prelude::*;
use std::convert::Infallible;

struct Raw<'a> {
    numbers: &'a [u64],
    names: &'a [Name],
    at: usize,
}

impl Raw<'_> {
    fn number(&mut self) -> u64 {
        self.at += 1;
        self.numbers[self.at % self.numbers.len()]
    }
}

impl FieldSource for Raw<'_> {
    type Error = Infallible;
    fn handle(&mut self, _: &'static str) -> Result<u64, Infallible> {
        Ok(self.number())
    }
    fn message(&mut self, _: &'static str) -> Result<u64, Infallible> {
        Ok(self.number())
    }
    fn tid(&mut self, _: &'static str) -> Result<u32, Infallible> {
        Ok(self.number() as u32)
    }
    fn small(&mut self, _: &'static str, max: u16) -> Result<u16, Infallible> {
        Ok(self.number() as u16 & max)
    }
    fn int(&mut self, _: &'static str) -> Result<i64, Infallible> {
        Ok(self.number() as i64)
    }
    fn uint(&mut self, _: &'static str) -> Result<u64, Infallible> {
        Ok(self.number())
    }
    fn mask(&mut self, _: &'static str) -> Result<u64, Infallible> {
        Ok(self.number())
    }
    fn gid(&mut self, _: &'static str) -> Result<[u8; 16], Infallible> {
        let mut gid = [0; 16];
        gid[3..11].copy_from_slice(&self.number().to_be_bytes());
        Ok(gid)
    }
    fn stamp(&mut self, _: &'static str, required: bool) -> Result<Option<i64>, Infallible> {
        let number = self.number();
        Ok((required || !number.is_multiple_of(3)).then_some(number as i64))
    }
    fn flag(&mut self, _: &'static str) -> Result<bool, Infallible> {
        Ok(self.number() % 2 == 1)
    }
    fn name(&mut self, _: &'static str) -> Result<Name, Infallible> {
        let number = self.number() as usize;
        Ok(self.names[number % self.names.len()].clone())
    }
    fn choice(
        &mut self,
        _: &'static str,
        words: &'static [&'static str],
    ) -> Result<u8, Infallible> {
        Ok((self.number() % words.len() as u64) as u8)
    }
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..8u64,
        2 => (0..4u64).prop_map(|n| 0x7f00_0000_0000 + n * 64),
        1 => any::<u64>(),
    ]
}

pub fn events(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Event>> {
    let delta = prop_oneof![8 => 0..2_000_000u64, 1 => any::<u64>().prop_map(|d| d >> 16)];
    let back = prop_oneof![9 => Just(0u64), 1 => 0..100_000u64];
    let one = (
        (delta, back),
        prop_oneof![9 => 0..4u16, 1 => any::<u16>()],
        prop_oneof![9 => 1..4u32, 1 => any::<u32>()],
        prop_oneof![9 => 1..4u32, 1 => any::<u32>()],
        0..KINDS.len(),
        prop::collection::vec(number(), 6),
        prop::collection::vec(".{0,12}", 3),
    );
    prop::collection::vec(one, count).prop_map(|list| {
        let mut time_ns = 1u64 << 40;
        list.into_iter()
            .map(|((delta, back), cpu, pid, tid, kind, numbers, names)| {
                time_ns = time_ns.saturating_add(delta);
                let names: Vec<Name> = names.into_iter().map(Into::into).collect();
                let mut raw = Raw {
                    numbers: &numbers,
                    names: &names,
                    at: 0,
                };
                let Ok(Some(kind)) = table::get(KINDS[kind].code, &mut raw) else {
                    unreachable!("the table knows its own codes");
                };
                Event {
                    time_ns: time_ns - back,
                    cpu,
                    pid,
                    tid,
                    kind,
                }
            })
            .collect()
    })
}

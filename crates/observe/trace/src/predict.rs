//! What encoder and decoder of a block both remember, so that expected values cost almost nothing.
//!
//! Every event of a block updates this state in the same way on both sides; it starts empty with
//! each block. docs/trace-format.md describes it byte for byte.

/// Log2 of the number of slots.
const BITS: u32 = 13;

/// Which column a context belongs to, so that columns do not share slots by design.
#[derive(Clone, Copy)]
pub(crate) enum Use {
    Cpu = 1,
    Thread = 2,
    Kind = 3,
    Handle = 4,
    Message = 5,
    Tid = 6,
    Small = 7,
    Gid = 8,
    Int = 9,
}

/// Values seen last in a context: the newest and the one before it.
pub(crate) struct Predictor {
    slots: Vec<[u32; 2]>,
    integers: Vec<u64>,
}

/// Hashes a context to 32 bits.
#[inline]
pub(crate) fn context(which: Use, a: u32, b: u32, c: u32) -> u32 {
    let mut h = (which as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    h = (h ^ u64::from(a)).wrapping_mul(0xC2B2_AE3D_27D4_EB4F);
    h = (h ^ u64::from(b)).wrapping_mul(0x1656_67B1_9E37_79F9);
    h = (h ^ u64::from(c)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (h >> 32) as u32
}

impl Predictor {
    pub(crate) fn new() -> Self {
        Predictor {
            slots: vec![[0; 2]; 1 << BITS],
            integers: vec![0; 1 << BITS],
        }
    }

    pub(crate) fn reset(&mut self) {
        self.slots.fill([0; 2]);
        self.integers.fill(0);
    }

    #[inline]
    fn slot(&mut self, context: u32) -> &mut [u32; 2] {
        &mut self.slots[(context >> (32 - BITS)) as usize]
    }

    /// The code of `value` in this context: 0 the newest value, 1 the one before, else
    /// `value + 2`. `value` must be below `u32::MAX - 2`.
    #[inline]
    pub(crate) fn encode(&mut self, context: u32, value: u32) -> u32 {
        let slot = self.slot(context);
        let stored = value + 1;
        if slot[0] == stored {
            0
        } else if slot[1] == stored {
            slot.swap(0, 1);
            1
        } else {
            *slot = [stored, slot[0]];
            value + 2
        }
    }

    /// The value of a code; `None` where the slot is empty.
    #[inline]
    pub(crate) fn decode(&mut self, context: u32, code: u32) -> Option<u32> {
        let slot = self.slot(context);
        match code {
            0 => slot[0].checked_sub(1),
            1 => {
                slot.swap(0, 1);
                slot[0].checked_sub(1)
            }
            _ => {
                *slot = [code - 1, slot[0]];
                Some(code - 2)
            }
        }
    }

    /// The last integer of this context (0 at first), to be replaced by the new one.
    #[inline]
    pub(crate) fn integer(&mut self, context: u32) -> &mut u64 {
        &mut self.integers[(context >> (32 - BITS)) as usize]
    }
}

/// What happened last on a CPU.
#[derive(Clone, Copy, Default)]
struct Cpu {
    thread: u32,
    kind: u8,
}

/// What a thread did last.
#[derive(Clone, Copy, Default)]
struct Thread {
    /// The last kinds, newest in the lowest byte.
    kinds: u32,
    /// The last handle, as index.
    handle: u32,
}

/// The history that contexts are made of.
pub(crate) struct History {
    previous_cpu: u32,
    cpus: Vec<Cpu>,
    threads: Vec<Thread>,
    /// Of the event at hand.
    pub(crate) cpu: u32,
    pub(crate) thread: u32,
    pub(crate) kind: u32,
    field: u32,
    key: u32,
}

impl History {
    pub(crate) fn new() -> Self {
        History {
            previous_cpu: 0,
            cpus: vec![Cpu::default(); 256],
            threads: Vec::new(),
            cpu: 0,
            thread: 0,
            kind: 0,
            field: 0,
            key: 0,
        }
    }

    pub(crate) fn reset(&mut self) {
        self.previous_cpu = 0;
        self.cpus.fill(Cpu::default());
        self.threads.clear();
    }

    #[inline]
    pub(crate) fn cpu_context(&self) -> u32 {
        let last = self.cpus[(self.previous_cpu & 255) as usize];
        context(
            Use::Cpu,
            self.previous_cpu,
            u32::from(last.kind),
            last.thread,
        )
    }

    #[inline]
    pub(crate) fn set_cpu(&mut self, cpu: u16) {
        self.cpu = u32::from(cpu);
    }

    #[inline]
    pub(crate) fn thread_context(&self) -> u32 {
        let last = self.cpus[(self.cpu & 255) as usize];
        context(Use::Thread, self.cpu, u32::from(last.kind), last.thread)
    }

    #[inline]
    pub(crate) fn set_thread(&mut self, thread: u32) {
        self.thread = thread;
        if self.threads.len() <= thread as usize {
            self.threads.resize(thread as usize + 1, Thread::default());
        }
    }

    #[inline]
    pub(crate) fn kind_context(&self) -> u32 {
        let kinds = self.threads[self.thread as usize].kinds;
        context(Use::Kind, self.thread, kinds & 0xFF_FFFF, 0)
    }

    #[inline]
    pub(crate) fn set_kind(&mut self, kind: u8) {
        self.kind = u32::from(kind);
        self.field = 0;
        self.key = 0;
    }

    /// Context of the next field of the event at hand.
    #[inline]
    pub(crate) fn field_context(&mut self, which: Use) -> u32 {
        self.field += 1;
        let place = self.kind << 8 | self.field;
        let thread = &self.threads[self.thread as usize];
        match which {
            // Executors serve their entities in turns: the one before tells the next.
            Use::Handle => context(which, place, self.thread, thread.handle),
            // Counters run per object.
            Use::Int => context(which, place, self.key, 0),
            Use::Small => context(which, place, self.thread, self.key),
            _ => context(which, place, self.thread, self.cpu << 16 ^ self.key),
        }
    }

    /// Notes a handle (as index) of the event at hand.
    #[inline]
    pub(crate) fn set_handle(&mut self, handle: u32) {
        self.key = self.key.wrapping_mul(31).wrapping_add(handle + 1);
        self.threads[self.thread as usize].handle = handle;
    }

    /// Notes a global identifier (as index) of the event at hand.
    #[inline]
    pub(crate) fn set_gid(&mut self, gid: u32) {
        self.key = self.key.wrapping_mul(31).wrapping_add(gid + 1);
    }

    /// Ends the event at hand.
    #[inline]
    pub(crate) fn end(&mut self) {
        self.previous_cpu = self.cpu;
        self.cpus[(self.cpu & 255) as usize] = Cpu {
            thread: self.thread,
            kind: self.kind as u8,
        };
        let thread = &mut self.threads[self.thread as usize];
        thread.kinds = thread.kinds << 8 | self.kind;
    }
}

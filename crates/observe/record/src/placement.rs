//! Finds the cheapest instruction for a uprobe in a function's entry block. The module is pure: it
//! takes code bytes and returns an offset.
//!
//! A uprobe costs least on an instruction that the kernel emulates. On any other instruction the
//! kernel single-steps a copy, which costs several times as much. Any instruction of the entry
//! block serves if every call passes it exactly once and no argument register was written before
//! it.
//!
//! Linux 6.18 turns 5-byte nops into calls, and such a nop must not be probed. The page that is
//! called is missing in a process that forked, which then dies. The call also writes below the
//! stack pointer, where a function that calls no other may keep its values (docs/decisions.md).

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
    OpAccess, Register,
};

/// The way in which the kernel executes a probed instruction. It emulates the instruction or, at a
/// higher cost, single-steps a copy of it.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Placement {
    Emulated,
    Stepped,
}

impl Placement {
    /// Returns the name that manifests use for this placement.
    pub fn name(self) -> &'static str {
        match self {
            Placement::Emulated => "emulated",
            Placement::Stepped => "stepped",
        }
    }
}

/// The instruction on which a probe is placed.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The offset from the function's first byte, in bytes.
    pub offset: u64,
    pub placement: Placement,
}

/// The processor architecture of the code to decode.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    X86_64,
    Aarch64,
}

/// Finds the cheapest place for a probe in the entry block of the function whose bytes are `code`.
/// With `fast_nop` the kernel turns probed 5-byte nops into calls, which can crash the program. The
/// search then skips these nops.
pub fn place(machine: Machine, code: &[u8], fast_nop: bool) -> Place {
    match machine {
        Machine::X86_64 => place_x86(code, fast_nop),
        Machine::Aarch64 => place_aarch64(code),
    }
}

/// Returns the first instruction of the function, even if a probe is expensive there. With
/// `fast_nop`, returns the first instruction that is not a 5-byte nop, because a probe on such a
/// nop can crash the program.
pub fn entry(machine: Machine, code: &[u8], fast_nop: bool) -> Place {
    let (offset, placement) = match machine {
        Machine::X86_64 => {
            let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
            let mut first = decoder.decode();
            while fast_nop && is_nop5(&first) && decoder.can_decode() {
                first = decoder.decode();
            }
            (first.ip(), kind_x86(&first, bytes_of(&first, code)))
        }
        Machine::Aarch64 => match place_aarch64(code) {
            Place {
                offset: 0,
                placement,
            } => (0, placement),
            _ => (0, Placement::Stepped),
        },
    };
    Place { offset, placement }
}

const ENTRY: Place = Place {
    offset: 0,
    placement: Placement::Stepped,
};

fn bytes_of<'a>(instruction: &Instruction, code: &'a [u8]) -> &'a [u8] {
    let code = code.get(instruction.ip() as usize..).unwrap_or_default();
    &code[..instruction.len().min(code.len())]
}

fn is_nop5(instruction: &Instruction) -> bool {
    instruction.len() == 5 && instruction.mnemonic() == Mnemonic::Nop
}

/// Returns how the kernel handles a probe on this instruction (arch/x86/kernel/uprobes.c).
fn kind_x86(instruction: &Instruction, bytes: &[u8]) -> Placement {
    let emulated = match instruction.code() {
        Code::Push_r64 => true,
        Code::Nopd | Code::Nopw | Code::Nopq => bytes.last() == Some(&0x90),
        // The kernel emulates branches, except far and indirect ones.
        _ => {
            matches!(instruction.flow_control(), FlowControl::ConditionalBranch)
                || (matches!(
                    instruction.flow_control(),
                    FlowControl::UnconditionalBranch | FlowControl::Call
                ) && instruction.is_call_near() | instruction.is_jmp_short_or_near())
        }
    };
    if emulated {
        Placement::Emulated
    } else {
        Placement::Stepped
    }
}

fn writes_argument(info: &mut InstructionInfoFactory, instruction: &Instruction) -> bool {
    const ARGUMENTS: [Register; 6] = [
        Register::RDI,
        Register::RSI,
        Register::RDX,
        Register::RCX,
        Register::R8,
        Register::R9,
    ];
    info.info(instruction).used_registers().iter().any(|used| {
        !matches!(
            used.access(),
            OpAccess::Read | OpAccess::CondRead | OpAccess::None | OpAccess::NoMemAccess
        ) && ARGUMENTS.contains(&used.register().full_register())
    })
}

fn place_x86(code: &[u8], fast_nop: bool) -> Place {
    // A branch back into the entry block would hit the probe twice. No instruction at or behind the
    // first such target serves, except the entry: only a loop of the whole function branches to it.
    let mut first_target = u64::MAX;
    let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            break;
        }
        if matches!(
            instruction.flow_control(),
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
        ) {
            let target = instruction.near_branch_target();
            if target != 0 && target <= instruction.ip() {
                first_target = first_target.min(target);
            }
        }
    }

    let mut best: Option<Place> = None;
    let mut info = InstructionInfoFactory::new();
    let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        let offset = instruction.ip();
        if instruction.is_invalid() || (best.is_some() && offset >= first_target) {
            break;
        }
        if fast_nop && is_nop5(&instruction) {
            continue;
        }
        let placement = kind_x86(&instruction, bytes_of(&instruction, code));
        if best.is_none_or(|best| placement < best.placement) {
            best = Some(Place { offset, placement });
        }
        if placement == Placement::Emulated
            || !matches!(instruction.flow_control(), FlowControl::Next)
            || writes_argument(&mut info, &instruction)
        {
            break;
        }
    }
    best.unwrap_or(ENTRY)
}

fn place_aarch64(code: &[u8]) -> Place {
    let mut best = ENTRY;
    for (index, word) in code.chunks_exact(4).enumerate().take(16) {
        let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        let offset = index as u64 * 4;
        let nop = word == 0xd503_201f;
        // stp x29, x30, [sp, #-n]! is simulated since Linux 6.13.
        let push_frame = word & 0xffc0_7fff == 0xa980_7bfd;
        let b = word & 0x7c00_0000 == 0x1400_0000;
        let b_cond = word & 0xff00_0010 == 0x5400_0000;
        let cbz = word & 0x7e00_0000 == 0x3400_0000;
        let tbz = word & 0x7e00_0000 == 0x3600_0000;
        let branch = b || b_cond || cbz || tbz;
        if nop || push_frame || branch {
            best = Place {
                offset,
                placement: Placement::Emulated,
            };
            break;
        }
        // The search may pass hints (bti, paciasp), stores of callee-saved pairs, `sub sp` and `mov
        // x29, sp`. Any other instruction might write an argument.
        let hint = word & 0xffff_f01f == 0xd503_201f;
        let store_pair = word & 0xffc0_0000 == 0xa900_0000 || word & 0xffc0_0000 == 0xa980_0000;
        let sub_sp = word & 0xff80_03ff == 0xd100_03ff;
        let mov_fp = word == 0x9100_03fd;
        if !(hint || store_pair || sub_sp || mov_fp) {
            break;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn x86(code: &[u8]) -> (u64, Placement) {
        let place = place(Machine::X86_64, code, true);
        (place.offset, place.placement)
    }

    #[test]
    fn a_push_at_a_functions_entry_gets_the_probe() {
        // push r15; push r14
        assert_eq!(
            x86(&[0x41, 0x57, 0x41, 0x56, 0xc3]),
            (0, Placement::Emulated)
        );
    }

    #[test]
    fn the_push_behind_an_endbr64_gets_the_probe() {
        // endbr64; push rbp; mov rbp, rsp
        assert_eq!(
            x86(&[0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5, 0xc3]),
            (4, Placement::Emulated)
        );
    }

    #[test]
    fn a_five_byte_nop_is_skipped_if_the_kernel_turns_it_into_a_call() {
        let of = |code: &[u8], fast_nop| {
            let place = place(Machine::X86_64, code, fast_nop);
            (place.offset, place.placement)
        };
        // nopl 0(rax,rax,1); mov rax, rdi; ret: an instruction to step is better than a call
        let code = [0x0f, 0x1f, 0x44, 0x00, 0x00, 0x48, 0x89, 0xf8, 0xc3];
        assert_eq!(of(&code, true), (5, Placement::Stepped));
        assert_eq!(of(&code, false), (0, Placement::Stepped));
        assert_eq!(entry(Machine::X86_64, &code, true).offset, 5);
        assert_eq!(entry(Machine::X86_64, &code, false).offset, 0);
        // mov [rsp-8], rdi; nopl 0(rax,rax,1); mov rax, [rsp-8]: the call would overwrite [rsp-8]
        let code = [
            0x48, 0x89, 0x7c, 0x24, 0xf8, 0x0f, 0x1f, 0x44, 0x00, 0x00, 0x48, 0x8b, 0x44, 0x24,
            0xf8, 0xc3,
        ];
        assert_eq!(of(&code, true), (0, Placement::Stepped));
        // Another nop of five bytes: data16 nopw 0(rax), in a function that branches to its entry.
        let code = [0x66, 0x0f, 0x1f, 0x40, 0x00, 0x48, 0x89, 0xf8, 0xeb, 0xf6];
        assert_eq!(of(&code, true), (8, Placement::Emulated));
    }

    #[test]
    fn probes_of_onbeat_flow_are_emulated_on_every_kernel() {
        // nopl 0(rax,rax,1); nop; mov eax, 1; ret
        let code = [
            0x0f, 0x1f, 0x44, 0x00, 0x00, 0x90, 0xb8, 0x01, 0x00, 0x00, 0x00, 0xc3,
        ];
        for fast_nop in [true, false] {
            let place = place(Machine::X86_64, &code, fast_nop);
            assert_eq!((place.offset, place.placement), (5, Placement::Emulated));
        }
    }

    #[test]
    fn no_probe_is_placed_behind_a_write_to_an_argument_register() {
        // mov rcx, rdx (an argument register); push rbx
        assert_eq!(
            x86(&[0x48, 0x89, 0xd1, 0x53, 0xc3]),
            (0, Placement::Stepped)
        );
        // mov edi, edi writes an argument register too
        assert_eq!(x86(&[0x89, 0xff, 0x53, 0xc3]), (0, Placement::Stepped));
        // mov rbx, rdi only reads the argument: the push behind it serves
        assert_eq!(
            x86(&[0x48, 0x89, 0xfb, 0x53, 0xc3]),
            (3, Placement::Emulated)
        );
        // the real rmw_send_request: lea rax, [rip+..]; mov rcx, rdx; ...; jmp
        assert_eq!(
            x86(&[
                0x48, 0x8d, 0x05, 0xc1, 0xfd, 0x01, 0x00, 0x48, 0x89, 0xd1, 0x48, 0x89, 0xf2, 0xe9,
                0, 0, 0, 0
            ]),
            (0, Placement::Stepped)
        );
    }

    #[test]
    fn a_branch_may_be_probed_but_nothing_behind_it() {
        // test rdi, rdi; je +1; push rbx; ret
        assert_eq!(
            x86(&[0x48, 0x85, 0xff, 0x74, 0x01, 0x53, 0xc3]),
            (3, Placement::Emulated)
        );
        // sub rsp, 8; call +0 ; push rbx
        assert_eq!(
            x86(&[0x48, 0x83, 0xec, 0x08, 0xe8, 0, 0, 0, 0, 0x53]),
            (4, Placement::Emulated)
        );
        // ret first: nothing behind it is reached
        assert_eq!(x86(&[0xc3, 0x53]), (0, Placement::Stepped));
    }

    #[test]
    fn no_probe_is_placed_within_a_loop() {
        // mov rbx, rdi; L: nopl 0(rax,rax,1); test rbx, rbx; jne L; ret
        let code = [
            0x48, 0x89, 0xfb, 0x0f, 0x1f, 0x44, 0x00, 0x00, 0x48, 0x85, 0xdb, 0x75, 0xf6, 0xc3,
        ];
        assert_eq!(x86(&code), (0, Placement::Stepped));
    }

    #[test]
    fn invalid_and_empty_code_gets_its_probe_at_the_entry() {
        assert_eq!(x86(&[]), (0, Placement::Stepped));
        assert_eq!(x86(&[0x06, 0x07]), (0, Placement::Stepped));
        assert_eq!(x86(&[0x48]), (0, Placement::Stepped));
    }

    #[test]
    fn arm_probes_are_placed_on_emulated_instructions_if_possible() {
        let code = |words: &[u32]| {
            words
                .iter()
                .flat_map(|w| w.to_le_bytes())
                .collect::<Vec<_>>()
        };
        let arm = |words: &[u32]| {
            let place = place(Machine::Aarch64, &code(words), false);
            (place.offset, place.placement)
        };
        // stp x29, x30, [sp, #-48]!
        assert_eq!(arm(&[0xa9bd_7bfd, 0x9100_03fd]), (0, Placement::Emulated));
        // paciasp; stp x29, x30, [sp, #-32]!
        assert_eq!(arm(&[0xd503_233f, 0xa9be_7bfd]), (4, Placement::Emulated));
        // sub sp, sp, #0x20; stp x19, x20, [sp, #16]; cbz x0, +8
        assert_eq!(
            arm(&[0xd100_83ff, 0xa901_53f3, 0xb400_0040]),
            (8, Placement::Emulated)
        );
        // mov x1, x0 writes an argument: the probe stays at the entry
        assert_eq!(arm(&[0xaa00_03e1, 0xa9be_7bfd]), (0, Placement::Stepped));
        assert_eq!(arm(&[]), (0, Placement::Stepped));
    }
}

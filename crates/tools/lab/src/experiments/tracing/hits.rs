//! The cost of one probe hit, by the instruction that is probed, with and without onbeat's
//! placement.

use crate::frame::children::Guarded;
use crate::frame::report::{number, range, Figure, Report, Table};
use crate::frame::{Context, Estimate, LabError, Result};
use crate::measure::arms::{interleave, ArmSamples};
use crate::measure::stats::mean;
use crate::measure::uprobe::Uprobe;
use crate::measure::{native, ros};
use crate::plot::bars;
use onbeat_record::elf::Symbols;
use onbeat_record::placement::{place, Place, Placement};
use onbeat_record::probes::{Distribution, Library, PROBES};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

const SOURCE: &str = include_str!("../../../native/hits.c");

const FORMS: [(&str, &str); 8] = [
    ("nop5", "5-byte nop"),
    ("push", "push"),
    ("jump", "conditional jump"),
    ("sub", "sub (from the stack pointer)"),
    ("mov", "mov"),
    ("endbr", "endbr64"),
    ("ret", "ret"),
    ("return", "uretprobe"),
];

struct Spot {
    name: String,
    call: String,
    /// The probe: its file, its offset in the file, and whether it is at the function's return.
    /// `None` for the arm without a probe.
    probe: Option<(PathBuf, u64, bool)>,
}

struct Callee {
    _child: Guarded,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Callee {
    fn start(context: &Context, program: &Path, library: Option<(&Path, &str)>) -> Result<Self> {
        let mut command = Command::new(program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some((file, loader_path)) = library {
            command.arg(file).env("LD_LIBRARY_PATH", loader_path);
        }
        let mut child = context.spawn(&mut command)?;
        let pipes = (child.child().stdin.take(), child.child().stdout.take());
        let (Some(input), Some(output)) = pipes else {
            return Err(LabError::program(
                program.display().to_string(),
                "the program's standard input and output are not available",
            ));
        };
        Ok(Callee {
            _child: child,
            input,
            output: BufReader::new(output),
        })
    }

    fn call(&mut self, function: &str, calls: u64) -> Result<f64> {
        let mut answer = String::new();
        writeln!(self.input, "{function} {calls}")
            .and_then(|()| self.input.flush())
            .and_then(|()| self.output.read_line(&mut answer))
            .map_err(|e| LabError::program("the program with the probed functions", e))?;
        let ns: f64 = answer.trim().parse().map_err(|_| {
            LabError::program(
                "the program with the probed functions",
                format!("the program ended while calling {function}"),
            )
        })?;
        Ok(ns / calls as f64)
    }
}

fn run_spots(
    context: &Context,
    purpose: &str,
    target: &mut Callee,
    spots: &[Spot],
    rounds: usize,
    calls: u64,
) -> Result<ArmSamples> {
    let names: Vec<&str> = spots.iter().map(|s| s.name.as_str()).collect();
    interleave(
        context.turns(purpose, names.len(), rounds),
        &names,
        |arm, _| {
            let spot = &spots[arm];
            let _attached = match &spot.probe {
                Some((file, offset, at_return)) => Some(Uprobe::attach(file, *offset, *at_return)?),
                None => None,
            };
            // The first calls also pay for the page to which the kernel writes the breakpoint, so they are
            // not measured.
            target.call(&spot.call, 200)?;
            Ok(vec![target.call(&spot.call, calls)?])
        },
    )
}

/// Returns whether the kernel with this release text is at least 6.18. From 6.18 on, the kernel
/// replaces 5-byte nops by calls, which makes probes on them fast.
fn fast_nop(machine_kernel: &str) -> bool {
    let mut numbers = machine_kernel
        .split(['.', '-'])
        .filter_map(|n| n.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version >= (6, 18)
}

#[derive(Debug, Default)]
pub struct Costs(Vec<(&'static str, f64)>);

impl Costs {
    pub fn of(&self, placement: &str) -> Option<f64> {
        let form = match placement {
            "nop" => "nop5",
            "emulated" => "push",
            "stepped" => "endbr",
            "uretprobe" => "return",
            _ => return None,
        };
        self.0.iter().find(|c| c.0 == form).map(|c| c.1)
    }
}

pub fn measure(context: &mut Context, report: &mut Report) -> Result<Costs> {
    context.step(
        "cost of a probe hit, for each kind of probed instruction",
        900,
    );
    let fast_nop = fast_nop(&onbeat_proc::system::kernel_release());
    let rounds = context.pick(30, 5);
    let calls = context.pick(20_000, 4_000);
    let program = native::compile("hits", SOURCE, &["-ldl".into()])?;
    let spots = form_spots(&program, fast_nop)?;
    let mut target = Callee::start(context, &program, None)?;
    let samples = run_spots(context, "hits", &mut target, &spots, rounds, calls)?;
    drop(target);
    samples.save(context, "hits.csv")?;
    let forms = costs_of_forms(context, &samples);
    table_of_forms(report, &forms, rounds as u64);
    plot_forms(context, &forms)?;
    for distribution in ["kilted", "jazzy"] {
        let measured = real_functions(context, report, distribution, &program, fast_nop)
            .and_then(|()| table_of_placements(context, report, distribution, fast_nop));
        if let Err(e) = measured {
            report.skip(
                format!("cost per probe hit in the libraries of ROS 2 {distribution}"),
                e,
            );
        }
    }
    Ok(Costs(
        forms
            .iter()
            .map(|f| (f.form, f.here.value.max(0.0)))
            .collect(),
    ))
}

/// Returns the arms for each form of instruction: no probe, a probe on an instruction of this form,
/// and a probe at the place that onbeat chooses in the same function. The form `return` has no
/// third arm.
fn form_spots(program: &Path, fast_nop: bool) -> Result<Vec<Spot>> {
    let symbols = Symbols::read(program, true, |name| {
        name.starts_with("form_") || name.starts_with("hit_")
    })
    .map_err(|e| LabError::in_file(program, e))?;
    let lookup = |name: &str| {
        symbols
            .get(name)
            .ok_or_else(|| LabError::in_file(program, format!("no symbol {name}")))
    };
    let mut spots = vec![];
    for (form, _) in FORMS {
        let function = lookup(&format!("form_{form}"))?;
        let labelled = lookup(&format!("hit_{form}"))?;
        let at = function.file_offset + (labelled.address - function.address);
        let mut spot = |kind: &str, probe: Option<(u64, bool)>| {
            spots.push(Spot {
                name: format!("{form}.{kind}"),
                call: form.into(),
                probe: probe.map(|(at, at_return)| (program.to_path_buf(), at, at_return)),
            })
        };
        spot("bare", None);
        spot("here", Some((at, form == "return")));
        if form != "return" {
            let placed = place(symbols.machine, &function.code, fast_nop);
            spot(
                "placed",
                Some((function.file_offset + placed.offset, false)),
            );
        }
    }
    Ok(spots)
}

struct FormCost {
    form: &'static str,
    title: &'static str,
    here: Estimate,
    /// The cost of a hit in us with the probe at the place in the function that onbeat chooses.
    /// `None` for the form `return`, whose probe has no other place.
    placed: Option<Estimate>,
}

fn costs_of_forms(context: &Context, samples: &ArmSamples) -> Vec<FormCost> {
    let index = |name: String| samples.names().iter().position(|n| *n == name);
    let cost = |form: &str, kind: &str| {
        let bare = index(format!("{form}.bare"))?;
        let arm = index(format!("{form}.{kind}"))?;
        let ns = samples.added_quantile(bare, arm, 0.5, &mut context.rng("interval"));
        Some(ns.map(|ns| ns / 1000.0))
    };
    let of_form = |(form, title): (&'static str, &'static str)| {
        Some(FormCost {
            form,
            title,
            here: cost(form, "here")?,
            placed: cost(form, "placed"),
        })
    };
    FORMS.into_iter().filter_map(of_form).collect()
}

fn table_of_forms(report: &mut Report, forms: &[FormCost], rounds: u64) {
    let mut table = Table::new(
        "Cost of one probe hit, us (median over rounds, minus the call without a probe)",
        "probed instruction | cost with the probe on it | 95 % interval | cost with the probe at the place that onbeat chooses",
    );
    for f in forms {
        let figure = |name: String, e: Estimate| Figure::estimated(name, e, "us").samples(rounds);
        report.figure(figure(format!("hit.{}", f.form), f.here));
        if let Some(placed) = f.placed {
            let name = format!("hit.{}.placed", f.form);
            report.figure(
                figure(name, placed).baseline(f.here.value, "probe at the function's entry"),
            );
        }
        table.row([
            f.title.to_string(),
            number(f.here.value),
            range((f.here.low, f.here.high)),
            f.placed.map(|p| number(p.value)).unwrap_or_default(),
        ]);
    }
    report.tables.push(table);
}

fn plot_forms(context: &mut Context, forms: &[FormCost]) -> Result<()> {
    let categories: Vec<String> = forms.iter().map(|f| f.form.to_string()).collect();
    let there = forms.iter().map(|f| f.here).collect();
    let placed = forms
        .iter()
        .map(|f| f.placed.unwrap_or(Estimate::exact(0.0)));
    let svg = bars(
        "Cost of one probe hit, for each kind of probed instruction",
        "us per hit",
        &categories,
        &[
            ("probe on this instruction".into(), there),
            (
                "probe at the place that onbeat chooses".into(),
                placed.collect(),
            ),
        ],
        None,
    )?;
    context.plot("hits.svg", &svg)
}

fn real_functions(
    context: &mut Context,
    report: &mut Report,
    distribution: &str,
    program: &Path,
    fast_nop: bool,
) -> Result<()> {
    context.step(
        format!("cost per probe hit in functions of ROS 2 {distribution}"),
        900,
    );
    let env = context.ros_env(distribution)?;
    let library = env.join("lib/libtracetools.so");
    let (spots, places) = function_spots(&library, distribution, fast_nop)?;
    let mut target = Callee::start(context, program, Some((&library, &ros::loader_path(&env))))?;
    let rounds = context.pick(30, 5);
    let samples = run_spots(
        context,
        distribution,
        &mut target,
        &spots,
        rounds,
        context.pick(20_000, 4_000),
    )?;
    drop(target);
    samples.save(context, &format!("hits-{distribution}.csv"))?;

    function_table(context, report, distribution, &samples, &places);
    Ok(())
}

type PlacedFunction = (&'static str, Place);

fn function_spots(
    library: &Path,
    distribution: &str,
    fast_nop: bool,
) -> Result<(Vec<Spot>, Vec<PlacedFunction>)> {
    let generation = generation_of(distribution);
    let wanted: Vec<&'static str> = PROBES
        .iter()
        .filter(|p| p.library == Library::Tracetools && p.applies_to(generation))
        .filter(|p| ["callback_start", "callback_end", "rmw_take", "rmw_publish"].contains(&p.name))
        .filter_map(|p| p.symbols.first().copied())
        .collect();
    let symbols = Symbols::read(library, false, |name| wanted.contains(&name))
        .map_err(|e| LabError::in_file(library, e))?;
    let mut spots = vec![];
    let mut places: Vec<(&'static str, Place)> = vec![];
    for name in wanted {
        let Some(function) = symbols.get(name) else {
            continue;
        };
        let placed = place(symbols.machine, &function.code, fast_nop);
        places.push((name, placed));
        let at = |offset: u64| Some((library.to_path_buf(), function.file_offset + offset, false));
        for (kind, probe) in [
            ("bare", None),
            ("entry", at(0)),
            ("placed", at(placed.offset)),
        ] {
            spots.push(Spot {
                name: format!("{name}.{kind}"),
                call: name.into(),
                probe,
            });
        }
    }
    Ok((spots, places))
}

fn function_table(
    context: &Context,
    report: &mut Report,
    distribution: &str,
    samples: &ArmSamples,
    places: &[(&str, Place)],
) {
    let mut table = Table::new(
        format!("Cost of one hit in ROS 2 {distribution}'s libtracetools, us"),
        "function | cost with a probe at the function's entry, us | cost with a probe at the place that onbeat chooses, us | offset of this place, bytes | how the kernel runs the probed instruction",
    );
    let mut rng = context.rng("interval");
    let (mut entries, mut placements) = (vec![], vec![]);
    for (i, (name, placed)) in places.iter().enumerate() {
        let mut cost = |arm: usize| {
            samples
                .added_quantile(3 * i, 3 * i + arm, 0.5, &mut rng)
                .value
                / 1000.0
        };
        let (entry, there) = (cost(1), cost(2));
        entries.push(entry);
        placements.push(there);
        table.row([
            name.to_string(),
            number(entry),
            number(there),
            format!("+{}", placed.offset),
            placed.placement.name().to_string(),
        ]);
    }
    report.tables.push(table);
    report.figure(
        Figure::new(
            format!("hit.{distribution}.placed"),
            mean(&placements),
            "us",
        )
        .baseline(mean(&entries), "probe at the function's entry")
        .samples((samples.rounds() * places.len()) as u64),
    );
}

/// Reports how many probes in the libraries of a ROS 2 distribution the kernel must single-step:
/// with the probes at function entries, and with the probes at the places that onbeat chooses.
fn table_of_placements(
    context: &Context,
    report: &mut Report,
    distribution: &str,
    fast_nop: bool,
) -> Result<()> {
    let lib = context.ros_env(distribution)?.join("lib");
    let generation = generation_of(distribution);
    let files = [
        (Library::Tracetools, "libtracetools.so"),
        (Library::Rcl, "librcl.so"),
        (Library::Rmw, "librmw_fastrtps_cpp.so"),
    ];
    let (mut probes, mut at_entry, mut placed_stepped) = (0u32, 0u32, 0u32);
    for (library, file) in files {
        let path = lib.join(file);
        let rows = || {
            PROBES
                .iter()
                .filter(|p| p.library == library && p.applies_to(generation))
        };
        let symbols = Symbols::read(&path, false, |name| {
            rows().any(|p| p.symbols.contains(&name))
        })
        .map_err(|e| LabError::in_file(&path, e))?;
        for row in rows() {
            let found = row.symbols.iter().filter_map(|s| symbols.get(s));
            for function in found.take(if row.all { usize::MAX } else { 1 }) {
                probes += 1;
                // The entry is cheap if the first instruction alone, of any length, is not
                // single-stepped.
                let cheap_at_entry = (1..=15.min(function.code.len()))
                    .map(|n| place(symbols.machine, &function.code[..n], fast_nop))
                    .any(|p| p.offset == 0 && p.placement != Placement::Stepped);
                at_entry += u32::from(!cheap_at_entry);
                let placed = place(symbols.machine, &function.code, fast_nop);
                placed_stepped += u32::from(placed.placement == Placement::Stepped);
            }
        }
    }
    report.figure(
        Figure::new(
            format!("stepped.{distribution}"),
            placed_stepped.into(),
            "probes",
        )
        .baseline(f64::from(at_entry), "probe at the function's entry")
        .samples(probes.into()),
    );
    Ok(())
}

fn generation_of(distribution: &str) -> Distribution {
    if distribution == "kilted" {
        Distribution::Kilted
    } else {
        Distribution::Jazzy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_with_fast_nops_are_recognised_by_their_release() {
        assert!(fast_nop("6.18.44-fc-v669") && fast_nop("7.0.0") && fast_nop("6.19-rc1"));
        assert!(!fast_nop("6.17.9") && !fast_nop("5.15.0-91-generic") && !fast_nop("strange"));
    }
}

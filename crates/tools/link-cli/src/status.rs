//! The command `onbeat link status`: shows the state of this machine's links.

use onbeat_document::text::duration;
use onbeat_link::bound::Cpu;
use onbeat_link::status::{
    class_ends_ns, survey, Found, Passed, PortStatus, Stall, Step, Steps, Survey, CLASSES,
};
use onbeat_terminal::term::{self, Align, Screen, Table};
use onbeat_terminal::CliError;
use onbeat_terminal::ExitStatus;
use serde_json::{json, Value};
use std::io::{self, Write};
use std::time::Duration;

/// Show the links of this machine's processes.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  onbeat link status            every end of a link in processes that you may read
  sudo onbeat link status       the links of all users
  onbeat link status --watch    again every second until Ctrl-C
  onbeat link status --json     JSON for programs; with --watch one line per second

LINK is the name in shared memory, or the address at which one end listens. USED is the number of
credits in use: messages that the peer has not consumed. It is - if the backend does not report it.
LAST is the time since the last message, in either direction. Counts begin when the end was made.
Processes that have ended are not shown. The table does not show how long the steps of a link's
threads take: --json has them all. A line below the table names the longest stall if it exceeds what
`onbeat link bound` assumes.

Exit codes: 0 done, also without any link; 1 failed; 2 wrong command line.")]
pub struct Args {
    /// Print JSON, for programs
    #[arg(long)]
    pub json: bool,
    /// Print again every second, until Ctrl-C
    #[arg(long)]
    pub watch: bool,
}

pub fn run(args: Args) -> Result<ExitStatus, CliError> {
    loop {
        let found = survey();
        let now_ns = onbeat_link::status::now_ns();
        let mut out = io::stdout().lock();
        match (args.json, args.watch) {
            (true, false) => term::write_json(&mut out, &as_json(&found, now_ns))?,
            (true, true) => {
                writeln!(out, "{}", as_json(&found, now_ns)).map_err(CliError::Stdout)?;
            }
            (false, _) => print(&mut out, &found, now_ns)?,
        }
        if !args.watch {
            return Ok(ExitStatus::Success);
        }
        if !args.json {
            writeln!(out).map_err(CliError::Stdout)?;
        }
        out.flush().map_err(CliError::Stdout)?;
        drop(out);
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Returns the time from `then_ns` to `now_ns`, in ns. `then_ns` comes from a status page, which
/// another program writes. If it is later than `now_ns`, the result is 0.
fn age(now_ns: u64, then_ns: u64) -> u64 {
    now_ns.saturating_sub(then_ns)
}

fn last_ns(found: &Found) -> Option<u64> {
    found.status.passed.iter().filter_map(|p| p.last_ns).max()
}

fn as_json(found: &Survey, now_ns: u64) -> Value {
    let passed = |passed: &Passed| {
        json!({
            "messages": passed.messages,
            "bytes": passed.bytes,
            "values": passed.values,
            "last_age_ns": passed.last_ns.map(|then| age(now_ns, then)),
        })
    };
    let link = |found: &Found| {
        let status = &found.status;
        let qos = status.qos.as_ref().map(|qos| {
            let named = qos.named().map(|(name, n)| (name.to_string(), n.into()));
            Value::Object(named.collect())
        });
        let port = status.port.map(|port| {
            json!({
                "given_bits_per_second": port.given_bits_per_second,
                "measured_bits_per_second": port.measured_bits_per_second,
                "chunk_bytes": port.chunk_bytes,
            })
        });
        json!({
            "pid": found.pid,
            "uid": found.uid,
            "program": found.program,
            "backend": status.backend.name(),
            "link": status.name,
            "peer": status.peer,
            "listens": status.listens,
            "state": status.state.name(),
            "age_ns": age(now_ns, status.since_ns[0]),
            "state_age_ns": age(now_ns, status.since_ns[1]),
            "credits": status.sizes.credits,
            "credits_used": status.credit.0,
            "sends_without_credit": status.credit.1,
            "message_bytes": status.sizes.message_bytes,
            "value_bytes": status.sizes.value_bytes,
            "sent": passed(&status.passed[0]),
            "received": passed(&status.passed[1]),
            "resumed": status.resumed_refused[0],
            "refused": status.resumed_refused[1],
            "items_lost": status.lost,
            "port": port,
            "qos": qos,
            "steps": steps(&status.steps, now_ns),
        })
    };
    json!({
        "links": found.links.iter().map(link).collect::<Vec<_>>(),
        "hidden_processes": found.hidden,
        "foreign_pages": found.foreign,
    })
}

fn steps(steps: &Steps, now_ns: u64) -> Value {
    let stalls = |stalls: &[Stall]| -> Vec<Value> {
        let stall = |stall: &Stall| {
            json!({
                "step": stall.step.name(),
                "took_ns": stall.took_ns,
                "done_ns": stall.done_ns,
                "age_ns": age(now_ns, stall.done_ns),
            })
        };
        stalls.iter().map(stall).collect()
    };
    let counts = Step::ALL.iter().zip(&steps.histogram);
    let counts = counts.map(|(step, counts)| (step.name().to_string(), json!(counts)));
    let ends: Vec<u64> = (0..CLASSES - 1).map(class_ends_ns).collect();
    json!({
        "class_ends_ns": ends,
        "histogram": counts.collect::<serde_json::Map<_, _>>(),
        "stalls": steps.stalls,
        "worst": stalls(&steps.worst),
        "recent": stalls(&steps.recent),
    })
}

/// Describes the longest stall of a link's end. Returns `None` if the stall is so short that the
/// default assumptions of `onbeat link bound` still hold.
fn longest_stall(steps: &Steps, now_ns: u64) -> Option<String> {
    let stall = steps.worst.first()?;
    let beyond = stall.took_ns.saturating_sub(Cpu::default().wake_ns);
    (beyond > Cpu::default().stall_ns).then(|| {
        format!(
            "step '{}' took {}, {} ago",
            stall.step.name(),
            duration(stall.took_ns as f64),
            duration(age(now_ns, stall.done_ns) as f64)
        )
    })
}

fn row(found: &Found, now_ns: u64) -> Vec<String> {
    let status = &found.status;
    let used = status.credit.0.map_or("-".into(), |used| used.to_string());
    let ago = |then: u64| duration(age(now_ns, then) as f64);
    vec![
        found.pid.to_string(),
        found.program.clone(),
        status.backend.name().into(),
        status.name.clone(),
        status.state.name().into(),
        ago(status.since_ns[0]),
        status.passed[0].messages.to_string(),
        status.passed[1].messages.to_string(),
        last_ns(found).map_or("-".into(), ago),
        format!("{used}/{}", status.sizes.credits),
    ]
}

fn notes(found: &Found, now_ns: u64) -> Vec<String> {
    let status = &found.status;
    let [resumed, refused] = status.resumed_refused;
    let mut said = vec![
        (resumed, "times resumed"),
        (refused, "handshakes refused"),
        (status.credit.1, "sends without credit"),
        (
            status.lost.unwrap_or(0),
            "unsent items replaced by newer ones",
        ),
    ];
    let spare = ["sent", "received"];
    let qos = status.qos.iter().flat_map(|qos| qos.named());
    said.extend(
        qos.filter(|(name, _)| !spare.contains(name))
            .map(|(name, n)| (n, name)),
    );
    said.retain(|(n, _)| *n > 0);
    let said = said.into_iter();
    let said = said.map(|(n, what)| format!("{n} {}", what.replace('_', " ")));
    said.chain(status.port.as_ref().and_then(port))
        .chain(longest_stall(&status.steps, now_ns))
        .collect()
}

/// Describes a port that has measured a lower rate than the given one. Returns `None` for other
/// ports.
fn port(port: &PortStatus) -> Option<String> {
    let megabits = |bits: u64| format!("{:.0} Mbit/s", bits as f64 / 1e6);
    let measured = port.measured_bits_per_second?;
    let (given, measured) = (megabits(port.given_bits_per_second), megabits(measured));
    let chunk = port.chunk_bytes;
    Some(format!(
        "the port measures a sending rate of {measured} (given: {given}) and sends chunks of {chunk} bytes"
    ))
}

fn print(out: &mut dyn Write, found: &Survey, now_ns: u64) -> Result<(), CliError> {
    let screen = Screen::of_stdout();
    if found.links.is_empty() {
        writeln!(out, "No links in the processes that you may read.").map_err(CliError::Stdout)?;
    } else {
        let mut table = Table::new()
            .column("PID", Align::Right)
            .names("PROGRAM", 1)
            .column("BACKEND", Align::Left)
            .names("LINK", 2)
            .column("STATE", Align::Left)
            .column("AGE", Align::Right)
            .column("SENT", Align::Right)
            .column("RECEIVED", Align::Right)
            .column("LAST", Align::Right)
            .column("USED", Align::Right);
        for link in &found.links {
            table.row(row(link, now_ns));
        }
        table.write(out, &screen)?;
    }
    for link in &found.links {
        let notes = notes(link, now_ns);
        if !notes.is_empty() {
            let name = term::fit(&link.status.name, 40);
            let text = format!("{} {name}: {}", link.pid, notes.join(", "));
            writeln!(out, "{}", screen.warn(&text)).map_err(CliError::Stdout)?;
        }
    }
    let mut say = |n: usize, what: &str| match n {
        0 => Ok(()),
        n => writeln!(out, "{}", screen.dim(&format!("{n} {what}"))).map_err(CliError::Stdout),
    };
    say(
        found.hidden,
        "processes cannot be read. Run as root to see their links.",
    )?;
    say(
        found.foreign,
        "status pages of links are damaged or come from another version of onbeat, and are not shown.",
    )
}

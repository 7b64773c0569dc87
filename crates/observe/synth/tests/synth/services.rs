//! Services of rclcpp that respond later: the callback stores the request and returns, and another
//! callback sends the response.

use super::*;

const CALLER: &str = "/caller:timer(100ms)";
const SERVICE: &str = "/server:service(/add)@/caller";
const ANSWER: &str = "/server:timer(30ms)";
const CLIENT: &str = "/caller:client(/add)";

const STARTED: &str = "
1ms cpu0 10/10 process command=/opt/caller distribution=jazzy rmw=rmw_fastrtps_cpp
1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=caller namespace=/
1ms cpu0 10/10 client_init client=0x40 node=0x1 rmw=0x1040 name=/add
1ms cpu0 10/10 timer_init timer=0x50 period_ns=100ms
1ms cpu0 10/10 timer_callback timer=0x50 callback=0x60
1ms cpu0 10/10 timer_node timer=0x50 node=0x1
2ms cpu1 20/20 process command=/opt/server distribution=jazzy rmw=rmw_fastrtps_cpp
2ms cpu1 20/20 node_init node=0x1 rmw=0x1001 name=server namespace=/
2ms cpu1 20/20 service_init service=0x30 node=0x1 rmw=0x1030 name=/add
2ms cpu1 20/20 service_callback service=0x30 callback=0x61
2ms cpu1 20/20 timer_init timer=0x51 period_ns=30ms
2ms cpu1 20/20 timer_callback timer=0x51 callback=0x62
2ms cpu1 20/20 timer_node timer=0x51 node=0x1
";

const LATE: &str = "
1ms cpu0 10/10 process command=/opt/caller distribution=jazzy rmw=rmw_fastrtps_cpp late=yes
1ms cpu0 10/10 node_found node=0x0 name=/caller
1ms cpu0 10/10 endpoint_found endpoint=client rcl=0x40 rmw=0x1040 name=/add
1ms cpu0 10/10 timer_found timer=0x50
2ms cpu1 20/20 process command=/opt/server distribution=jazzy rmw=rmw_fastrtps_cpp late=yes
2ms cpu1 20/20 node_found node=0x0 name=/server
2ms cpu1 20/20 endpoint_found endpoint=service rcl=0x30 rmw=0x1030 name=/add
2ms cpu1 20/20 timer_found timer=0x51
";

const GID: &str = "gid=01010101010101010101010101010101";

/// Returns the events of a timer's callback that sends a request at `t` us.
fn request(t: u64, sequence: u64) -> String {
    format!(
        "{t}us cpu0 10/10 executor_next_ready
{t}us cpu0 10/10 timer_call timer=0x50
{t}us cpu0 10/10 callback_start callback=0x60
{}us cpu0 10/10 request_send rmw=0x1040 sequence={sequence}
{}us cpu0 10/10 callback_end callback=0x60
{}us cpu0 10/10 executor_wait_for_work timeout_ns=-1
{}us cpu0 10/10 wait
",
        t + 100,
        t + 200,
        t + 250,
        t + 250,
    )
}

/// Returns the events of a call at `t` us. The service's callback runs for 2 ms. 30 ms later, the
/// callback of a timer on thread `answerer` responds after 1 ms. `end` says whether the end of the
/// service's callback is reported, which rclcpp before Kilted does not do.
fn call(t: u64, sequence: u64, end: bool, answerer: u32) -> String {
    let (r, s) = (t + 1_000, format!("{GID} sequence={sequence}"));
    let (done, a) = (r + 2_000, r + 30_000);
    let end = if end {
        format!("{done}us cpu1 20/20 callback_end callback=0x61\n")
    } else {
        String::new()
    };
    let request = request(t, sequence);
    format!(
        "{request}{r}us cpu1 20/20 executor_next_ready
{r}us cpu1 20/20 request_take rmw=0x1030 {s}
{r}us cpu1 20/20 callback_start callback=0x61
{end}{done}us cpu1 20/20 executor_next_ready
{done}us cpu1 20/20 executor_wait_for_work timeout_ns=-1
{done}us cpu1 20/20 wait
{a}us cpu1 20/{answerer} executor_next_ready
{a}us cpu1 20/{answerer} timer_call timer=0x51
{a}us cpu1 20/{answerer} callback_start callback=0x62
{}us cpu1 20/{answerer} response_send rmw=0x1030 {s} source_ns=-
{}us cpu1 20/{answerer} callback_end callback=0x62
{}us cpu1 20/{answerer} executor_next_ready
{}us cpu0 10/10 execute_start execute=client
{}us cpu0 10/10 response_take rmw=0x1040 sequence={sequence} source_ns=0
{}us cpu0 10/10 execute_end execute=client
",
        a + 1_000,
        a + 1_500,
        a + 1_500,
        a + 2_000,
        a + 2_000,
        a + 2_500,
    )
}

fn calls(start: &str, end: bool, answerer: u32) -> Model {
    let call = |i| call(10_000 + i * 100_000, i, end, answerer);
    model(&(start.to_string() + &(1..=20).map(call).collect::<String>()))
}

#[test]
fn a_service_that_responds_later_has_its_executions_and_its_chain() {
    for (end, answerer) in [(false, 20), (false, 21), (true, 20)] {
        let m = calls(STARTED, end, answerer);
        let exec = &callback(&m, SERVICE).figures.exec_ns;
        let found = (exec.count(), exec.min(), exec.max());
        assert_eq!(found, (20, 2_000_000, 2_000_000), "{end} {answerer}");
        let timer = &callback(&m, ANSWER).figures.exec_ns;
        assert_eq!((timer.count(), timer.max()), (20, 1_500_000));
        assert_eq!(edge(&m, SERVICE, ANSWER).taken, 20);
        assert_eq!(edge(&m, ANSWER, CLIENT).taken, 20);
        let chain = chain(&m, &[CALLER, SERVICE, ANSWER, CLIENT].join(" > "));
        let latency = &chain.figures.latency_ns;
        let found = (latency.count(), latency.min(), latency.max());
        assert_eq!(found, (20, 33_500_000, 33_500_000));
        let complaint = |line: &&String| line.contains("without an end");
        assert_eq!(m.coverage.iter().find(complaint), None);
    }
}

/// The middleware can report a server before it has connected client and service.
#[test]
fn the_coverage_names_a_service_that_takes_no_request() {
    let call = |i| request(10_000 + i * 100_000, i);
    let m = model(&(STARTED.to_string() + &(1..=20).map(call).collect::<String>()));
    let said = format!("{SERVICE} took nothing of 20 requests that its client sent. ");
    let told = m.coverage.iter().filter(|c| c.starts_with(&said)).count();
    assert_eq!(told, 1, "{:?}", m.coverage);
}

#[test]
fn a_response_of_another_thread_continues_the_services_chain() {
    // Thread 22 runs no callbacks and publishes nothing. It sends the responses.
    let call = |i: u64| {
        let events = call(10_000 + i * 100_000, i, false, 22);
        let outside = |line: &&str| {
            let executor = ["timer_call", "callback=0x62", "executor_next_ready"];
            !(line.contains("20/22") && executor.iter().any(|e| line.contains(e)))
        };
        let lines: Vec<&str> = events.lines().filter(outside).collect();
        lines.join("\n") + "\n"
    };
    let m = model(&(STARTED.to_string() + &(1..=20).map(call).collect::<String>()));
    assert_eq!(edge(&m, SERVICE, CLIENT).taken, 20);
    let chain = chain(&m, &[CALLER, SERVICE, CLIENT].join(" > "));
    let latency = &chain.figures.latency_ns;
    assert_eq!((latency.count(), latency.max()), (20, 33_500_000));
}

#[test]
fn late_attach_finds_the_executions_of_a_service_that_responds_later() {
    let m = calls(LATE, false, 20);
    let service = m
        .callbacks
        .iter()
        .find(|c| c.id.starts_with("/server:service"));
    let exec = &service.expect("a service").figures.exec_ns;
    assert_eq!(
        (exec.count(), exec.min(), exec.max()),
        (20, 2_000_000, 2_000_000)
    );
    assert!(chains(&m)
        .iter()
        .any(|c| c.contains("/server:service(/add)@/caller > ")));
}

#[test]
fn a_service_callback_that_runs_an_executor_ends_with_callback_end() {
    // In each call, the service's callback takes something with an executor of its own, for 1 ms.
    let mut trace = STARTED.to_string();
    for i in 1..=5u64 {
        let t = 10_000 + i * 100_000;
        trace += &format!(
            "{t}us cpu1 20/20 executor_next_ready
{t}us cpu1 20/20 request_take rmw=0x1030 {GID} sequence={i}
{t}us cpu1 20/20 callback_start callback=0x61
{}us cpu1 20/20 executor_wait_for_work timeout_ns=-1
{}us cpu1 20/20 wait
{}us cpu1 20/20 executor_next_ready
{}us cpu1 20/20 callback_end callback=0x61
{}us cpu1 20/20 response_send rmw=0x1030 {GID} sequence={i} source_ns=-
",
            t + 100,
            t + 100,
            t + 1_100,
            t + 3_000,
            t + 3_010,
        );
    }
    let m = model(&trace);
    let service = m
        .callbacks
        .iter()
        .find(|c| c.id.starts_with("/server:service"));
    let exec = &service.expect("a service").figures.exec_ns;
    assert_eq!(
        (exec.count(), exec.min(), exec.max()),
        (5, 3_000_000, 3_000_000)
    );
}

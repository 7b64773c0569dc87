//! Tests that the text form can hold every event of every kind.
mod common;

use onbeat_trace::text;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn printed_events_are_parsed_back_unchanged(events in common::events(0..60)) {
        let printed: Vec<String> = events.iter().map(text::print).collect();
        prop_assert!(printed.iter().all(|l| !l.chars().any(char::is_control)), "{printed:?}");
        prop_assert_eq!(text::parse(&printed.join("\n")), Ok(events));
    }
}

//! Tests that null pointers, wrong lengths, numbers without a meaning and handles in use are
//! refused with a code.

use onbeat_c::*;
use std::ffi::{c_void, CStr, CString};
use std::ptr::{null, null_mut};

fn last() -> String {
    // SAFETY: the text is never null, and belongs to this thread.
    let text = unsafe { CStr::from_ptr(onbeat_last_error()) };
    text.to_str().unwrap().into()
}

fn options(items: usize) -> OnbeatChannelOptions {
    onbeat_channel_options(OnbeatPolicy::Credit as u32, items, 16)
}

fn channel_ends() -> (*mut OnbeatProducer, *mut OnbeatConsumer) {
    let (mut channel, mut producer, mut consumer) = (null_mut(), null_mut(), null_mut());
    // SAFETY: all places can be written, and the handles are open.
    unsafe {
        assert_eq!(
            onbeat_channel_new(&options(2), &mut channel),
            OnbeatCode::Ok
        );
        assert_eq!(onbeat_producer_open(channel, &mut producer), OnbeatCode::Ok);
        assert_eq!(onbeat_consumer_open(channel, &mut consumer), OnbeatCode::Ok);
        assert_eq!(onbeat_channel_close(channel), OnbeatCode::Ok);
    }
    (producer, consumer)
}

#[test]
fn every_function_refuses_null_except_close() {
    use OnbeatCode::NullPointer as Null;
    let mut channel = null_mut();
    let (producer, consumer) = channel_ends();
    let sizes = OnbeatSizes {
        credits: 1,
        message_bytes: 1,
        value_bytes: 0,
    };
    // SAFETY: these functions refuse null. All other pointers are valid.
    unsafe {
        assert_eq!(onbeat_channel_open(null(), &options(1), &mut channel), Null);
        assert_eq!(last(), "a string is null");
        assert_eq!(
            onbeat_channel_open(c"x".as_ptr(), null(), &mut channel),
            Null
        );
        assert_eq!(onbeat_channel_new(&options(1), null_mut()), Null);
        assert_eq!(onbeat_channel_attach(null(), &mut channel), Null);
        assert_eq!(onbeat_producer_open(null_mut(), null_mut()), Null);
        assert_eq!(onbeat_producer_send(null_mut(), null(), 0, 0), Null);
        assert_eq!(onbeat_producer_send(producer, null(), 1, 0), Null);
        assert_eq!(onbeat_producer_fill(producer, 1, 0, None, null_mut()), Null);
        assert_eq!(
            onbeat_consumer_receive(consumer, 0, null_mut(), 16, null_mut()),
            Null
        );
        assert_eq!(onbeat_consumer_take(consumer, 0, None, null_mut()), Null);
        assert_eq!(onbeat_consumer_payload_bytes(null_mut()), 0);
        assert_eq!(onbeat_key_create_file(null()), Null);
        assert_eq!(onbeat_key_read_file(null(), null_mut()), Null);
        assert_eq!(onbeat_end_shm(null(), true, null_mut()), Null);
        let mut end = null_mut();
        assert_eq!(
            onbeat_end_tcp(c"127.0.0.1:1".as_ptr(), false, null_mut(), &mut end),
            Null
        );
        assert!(end.is_null());
        assert_eq!(onbeat_end_in_clear(null_mut()), Null);
        assert_eq!(onbeat_memory_bytes(null(), null_mut()), Null);
        let (mut out, mut into) = (null_mut(), null_mut());
        assert_eq!(
            onbeat_end_initialize(end, &sizes, null_mut(), 0, 0, &mut out, &mut into),
            Null
        );
        assert_eq!(onbeat_send(out, null(), 0, 0, null_mut()), Null);
        assert_eq!(onbeat_publish(out, null(), 0), Null);
        assert_eq!(
            onbeat_receive(into, 0, null_mut(), 0, null_mut(), null_mut()),
            Null
        );
        assert_eq!(onbeat_read(into, 0, null_mut(), 0, null_mut()), Null);
        assert_eq!(onbeat_tasks_new(null(), null_mut()), Null);
        assert_eq!(onbeat_tasks_run(null_mut()), Null);
        assert_eq!(onbeat_tasks_stop(null_mut()), Null);

        assert_eq!(onbeat_channel_close(null_mut()), OnbeatCode::Ok);
        assert_eq!(onbeat_outgoing_close(null_mut()), OnbeatCode::Ok);
        assert_eq!(onbeat_incoming_close(null_mut()), OnbeatCode::Ok);
        assert_eq!(onbeat_tasks_close(null_mut()), OnbeatCode::Ok);
        assert_eq!(onbeat_producer_close(producer), OnbeatCode::Ok);
        assert_eq!(onbeat_consumer_close(consumer), OnbeatCode::Ok);
    }
}

#[test]
fn a_wrong_length_is_refused_without_losing_an_item() {
    let (producer, consumer) = channel_ends();
    let mut buffer = [0_u8; 16];
    let place = buffer.as_mut_ptr().cast::<c_void>();
    let mut item = OnbeatItem {
        sequence: 7,
        sent_ns: 7,
        bytes: 7,
    };
    // SAFETY: the buffers have at least the given lengths.
    unsafe {
        assert_eq!(
            onbeat_producer_send(producer, place, 17, 0),
            OnbeatCode::TooLarge
        );
        assert!(last().contains("17 bytes"), "{}", last());
        assert_eq!(
            onbeat_producer_send(producer, place, usize::MAX, 0),
            OnbeatCode::Argument
        );
        let ahead = b"ahead".as_ptr().cast();
        assert_eq!(onbeat_producer_send(producer, ahead, 5, 0), OnbeatCode::Ok);
        assert_eq!(onbeat_producer_send(producer, null(), 0, 0), OnbeatCode::Ok);
        assert_eq!(
            onbeat_producer_send(producer, ahead, 5, 0),
            OnbeatCode::NoCredit
        );
        assert_eq!(
            onbeat_consumer_receive(consumer, 0, place, 15, &mut item),
            OnbeatCode::TooSmall
        );
        assert_eq!(item.sequence, 7);
        assert_eq!(
            onbeat_consumer_receive(consumer, 0, place, 16, &mut item),
            OnbeatCode::Ok
        );
        assert_eq!(
            (item.sequence, item.bytes, &buffer[..5]),
            (0, 5, &b"ahead"[..])
        );
        assert_eq!(
            onbeat_consumer_receive(consumer, 0, place, 16, null_mut()),
            OnbeatCode::Ok
        );
        assert_eq!(
            onbeat_consumer_receive(consumer, 0, place, 16, null_mut()),
            OnbeatCode::Nothing
        );
        assert_eq!(onbeat_producer_close(producer), OnbeatCode::Ok);
        assert_eq!(
            onbeat_consumer_receive(consumer, ONBEAT_FOREVER, place, 16, null_mut()),
            OnbeatCode::Closed
        );
        assert_eq!(onbeat_consumer_close(consumer), OnbeatCode::Ok);
    }
}

#[test]
fn impossible_numbers_in_options_are_refused() {
    let mut channel = null_mut();
    let try_one = |change: &dyn Fn(&mut OnbeatChannelOptions), channel: &mut _| {
        let mut asked = options(1);
        change(&mut asked);
        // SAFETY: both pointers are valid.
        let code = unsafe { onbeat_channel_new(&asked, channel) };
        assert_eq!(code, OnbeatCode::Argument);
        assert!(channel.is_null());
        last()
    };
    let policy = try_one(&|o| o.policy = 4, &mut channel);
    assert_eq!(
        policy,
        "policy 4 is not a value of OnbeatPolicy. Give 0 to 3."
    );
    let death = try_one(&|o| o.on_death = 9, &mut channel);
    assert_eq!(
        death,
        "on_death 9 is not a value of OnbeatOnDeath. Give 0 to 2."
    );
    try_one(&|o| o.consumers = 65, &mut channel);
    try_one(&|o| o.payload_bytes = usize::MAX, &mut channel);
    try_one(&|o| o.items = 0, &mut channel);

    let mut bytes = 0;
    let sizes = OnbeatSizes {
        credits: usize::MAX,
        message_bytes: 1,
        value_bytes: 0,
    };
    // SAFETY: both pointers are valid.
    let code = unsafe { onbeat_memory_bytes(&sizes, &mut bytes) };
    assert_eq!(code, OnbeatCode::Argument);
}

unsafe extern "C" fn use_own_handle(context: *mut c_void, _: *const u8, _: *const OnbeatItem) {
    let consumer = context.cast::<OnbeatConsumer>();
    // SAFETY: the handle is open. The test is that it is in use.
    unsafe {
        assert_eq!(
            onbeat_consumer_take(consumer, 0, Some(use_own_handle), null_mut()),
            OnbeatCode::Busy
        );
        assert_eq!(onbeat_consumer_close(consumer), OnbeatCode::Busy);
    }
}

#[test]
fn a_callback_cannot_use_its_own_handle() {
    let (producer, consumer) = channel_ends();
    // SAFETY: the handles are open.
    unsafe {
        assert_eq!(onbeat_producer_send(producer, null(), 0, 0), OnbeatCode::Ok);
        assert_eq!(
            onbeat_consumer_take(consumer, 0, Some(use_own_handle), consumer.cast()),
            OnbeatCode::Ok
        );
        assert_eq!(onbeat_consumer_close(consumer), OnbeatCode::Ok);
        assert_eq!(onbeat_producer_close(producer), OnbeatCode::Ok);
    }
}

#[test]
fn every_return_code_has_a_text_and_no_other_number_has_one() {
    let text = |code| {
        // SAFETY: the text is never null.
        unsafe { CStr::from_ptr(onbeat_code_text(code)) }
            .to_str()
            .unwrap()
    };
    assert_eq!(
        text(OnbeatCode::NotStarted as i32),
        "fewer consumers than expected have attached to the channel"
    );
    let known = (-1000..1000).filter(|c| text(*c) != "onbeat has no result code with this number");
    assert_eq!(known.count(), 22);
    let name = CString::new("no such channel").unwrap();
    let mut channel = null_mut();
    // SAFETY: both pointers are valid.
    let code = unsafe { onbeat_channel_attach(name.as_ptr(), &mut channel) };
    assert_eq!(code, OnbeatCode::Argument);
    assert!(
        last().starts_with("'no such channel' is not a channel name"),
        "{}",
        last()
    );
}

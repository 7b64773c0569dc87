// onbeat: channels without loss and links between machines, for C and C++.
//
// Generated from crates/runtime/c/src by a test: ONBEAT_WRITE_HEADER=1 cargo test -p onbeat-c --test header
//
// Functions return ONBEAT_CODE_OK (0), a positive code if nothing came before the deadline, or a
// negative code for an error. onbeat_last_error() returns the error's text for the calling thread.
// Deadlines are in ns of CLOCK_MONOTONIC: onbeat_now_ns() plus a time, 0 to not wait, ONBEAT_FOREVER.
// One thread at a time may use a handle: a second call meanwhile is refused with ONBEAT_CODE_BUSY.
// A closed handle must not be used again.

#ifndef ONBEAT_H
#define ONBEAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A deadline that never comes: the call waits without a limit.
#define ONBEAT_FOREVER UINT64_MAX

// The result of a call. A negative code is an error, and onbeat_last_error() has the text.
enum OnbeatCode
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // The call has succeeded.
  ONBEAT_CODE_OK = 0,
  // Nothing came before the deadline. This is not an error.
  ONBEAT_CODE_NOTHING = 1,
  // A pointer is null but must not be.
  ONBEAT_CODE_NULL_POINTER = -1,
  // An argument has a value that is not allowed.
  ONBEAT_CODE_ARGUMENT = -2,
  // A message or value is larger than agreed.
  ONBEAT_CODE_TOO_LARGE = -3,
  // A buffer is smaller than the largest possible message. Nothing was taken.
  ONBEAT_CODE_TOO_SMALL = -4,
  // The other side did not consume enough before the deadline. Nothing was sent.
  ONBEAT_CODE_NO_CREDIT = -5,
  // The other side has closed, and everything that it had sent was received.
  ONBEAT_CODE_CLOSED = -6,
  // The process at the other side died, or the other side can no longer be reached.
  ONBEAT_CODE_GONE = -7,
  // The peer has the key, but has sent data that breaks the protocol.
  ONBEAT_CODE_PROTOCOL = -8,
  // One end rejects the other: their key, version, sizes or options differ, or one of the ends
  // already has a peer.
  ONBEAT_CODE_REFUSED = -9,
  // No peer came before the deadline.
  ONBEAT_CODE_NO_PEER = -10,
  // The kernel has refused a system call. onbeat_last_error() names the purpose of the call.
  ONBEAT_CODE_SYSTEM = -11,
  // The machine has no channel with this name.
  ONBEAT_CODE_NOT_THERE = -12,
  // The channel with this name has other options than the caller's.
  ONBEAT_CODE_MISMATCH = -13,
  // The channel already has a producer, or the largest number of consumers that it can have.
  ONBEAT_CODE_IN_USE = -14,
  // The handle is in use by another thread, or by the callback that makes this call.
  ONBEAT_CODE_BUSY = -15,
  // The key file cannot be created or read, has a mode other than 0600, or contains no key.
  ONBEAT_CODE_KEY = -16,
  // onbeat has a defect and has ended the call. The handle can only be closed.
  ONBEAT_CODE_PANIC = -17,
  // All payloads of the channel are in use.
  ONBEAT_CODE_EXHAUSTED = -18,
  // Fewer consumers than expected attached before the deadline. Nothing was sent.
  ONBEAT_CODE_NOT_STARTED = -19,
  // A promise of the link is broken: freshness, integrity, deadline or liveliness.
  ONBEAT_CODE_BREACH = -20,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum OnbeatCode OnbeatCode;
#else
typedef int32_t OnbeatCode;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// The policy of a channel for a consumer that is slower than the producer.
enum OnbeatPolicy
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // A consumer gets the newest complete value. Neither producer nor consumer waits for the
  // other.
  ONBEAT_POLICY_LATEST = 0,
  // A new item replaces the oldest of `items` waiting items. Replaced items are counted: see
  // onbeat_consumer_dropped().
  ONBEAT_POLICY_DROP_OLDEST = 1,
  // The producer waits while a consumer has not consumed `items` items. Nothing is lost.
  ONBEAT_POLICY_CREDIT = 2,
  // The producer and each consumer have a buffer of `items` items each, and exchange full
  // buffers for empty ones. Nothing is lost.
  ONBEAT_POLICY_SWAP = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum OnbeatPolicy OnbeatPolicy;
#else
typedef uint32_t OnbeatPolicy;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// The reaction to the death of a participant in another process.
enum OnbeatOnDeath
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // After a participant's death, the other participants continue.
  ONBEAT_ON_DEATH_CONTINUE = 0,
  // After a consumer's death, the producer waits until as many consumers as expected are
  // attached again.
  ONBEAT_ON_DEATH_PAUSE = 1,
  // After a participant's death, the other side gets an error. Sending fails. Receiving fails
  // once all items are received.
  ONBEAT_ON_DEATH_FAIL = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum OnbeatOnDeath OnbeatOnDeath;
#else
typedef uint32_t OnbeatOnDeath;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// The value that a task returns. It says whether the tasks that follow this task run.
enum OnbeatTaskResult
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // The task does not activate the tasks that follow it.
  ONBEAT_TASK_RESULT_NOTHING = 0,
  // The task activates the tasks that follow it.
  ONBEAT_TASK_RESULT_OUTPUT = 1,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum OnbeatTaskResult OnbeatTaskResult;
#else
typedef uint32_t OnbeatTaskResult;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// A handle of a channel, which has one producer, and one or more consumers.
typedef struct OnbeatChannel OnbeatChannel;

// A handle of a receiving side of a channel.
typedef struct OnbeatConsumer OnbeatConsumer;

// A handle of one of the two ends of a link, before and while it has a peer.
typedef struct OnbeatEnd OnbeatEnd;

// The half of a link that receives. Closing it makes the peer's sends fail.
typedef struct OnbeatIncoming OnbeatIncoming;

// A handle of a key that both ends of a link have.
typedef struct OnbeatKey OnbeatKey;

// The half of a link that sends. Closing it announces to the peer that no more messages come.
typedef struct OnbeatOutgoing OnbeatOutgoing;

// A handle of the sending side of a channel.
typedef struct OnbeatProducer OnbeatProducer;

// A handle of tasks that run on one thread, in the order in which they were added.
typedef struct OnbeatTasks OnbeatTasks;

// The options that a channel is created with. Call onbeat_channel_options() for defaults, then
// change single fields.
typedef struct OnbeatChannelOptions {
  // The policy for a slow consumer, as a number: a value of OnbeatPolicy.
  uint32_t policy;
  // The number `items` that the values of OnbeatPolicy describe. ONBEAT_POLICY_LATEST ignores
  // it.
  size_t items;
  // Lets an idle consumer also get a buffer that is not full yet. Only ONBEAT_POLICY_SWAP uses
  // it.
  bool flush;
  // The size of the largest payload in bytes.
  size_t payload_bytes;
  // The largest number of consumers, 1 to 64.
  size_t consumers;
  // The largest number of items that one consumer borrows at a time.
  size_t borrowed;
  // The number of consumers that must attach before the first item is sent, so that no consumer
  // misses that item.
  size_t expected;
  // The reaction to a participant's death, as a number: a value of OnbeatOnDeath.
  uint32_t on_death;
} OnbeatChannelOptions;

// A callback that writes a message in place. It must return and must not throw. It must not use
// the handle with which the application called onbeat.
typedef void (*OnbeatFill)(void *context, uint8_t *bytes, size_t length);

// The number, sending time and length of an item, as a consumer receives them.
typedef struct OnbeatItem {
  // The number of the item, from 0 since the channel was created. A gap means lost items.
  uint64_t sequence;
  // The time at which the item was sent, in ns of CLOCK_MONOTONIC.
  uint64_t sent_ns;
  // The length of the item in bytes.
  size_t bytes;
} OnbeatItem;

// A callback that reads an item in place. It must return and must not throw. It must not use the
// handle with which the application called onbeat.
typedef void (*OnbeatTakeItem)(void *context, const uint8_t *bytes, const struct OnbeatItem *item);

// A callback that reads a message or value in place. It must return and must not throw. It must
// not use the handle with which the application called onbeat. `number` is 0 for a value.
typedef void (*OnbeatTake)(void *context, uint64_t number, const uint8_t *bytes, size_t length);

// The sizes of a link. Both ends must use the same sizes.
typedef struct OnbeatSizes {
  // The largest number of messages in each direction that are sent and not consumed yet: 1 to
  // 1024.
  size_t credits;
  // The size of the largest message in bytes, from 1 byte to 1 GiB.
  size_t message_bytes;
  // The size of the largest value in bytes, at most 1 GiB. 0 means that the link has no values.
  size_t value_bytes;
} OnbeatSizes;

// A callback that runs a task and returns a value of OnbeatTaskResult. It must return, and must
// not throw.
typedef uint32_t (*OnbeatRun)(void *context);

// A callback that runs a task with an item, which it reads in place. It returns a value of
// OnbeatTaskResult. It must return, and must not throw.
typedef uint32_t (*OnbeatRunOnItem)(void *context,
                                    const uint8_t *bytes,
                                    const struct OnbeatItem *item);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns the present time in ns of CLOCK_MONOTONIC. A deadline is this value plus a time.
uint64_t onbeat_now_ns(void);

// Returns options for a channel with at most four consumers, one of which is expected.
// ONBEAT_POLICY_LATEST ignores `items`.
struct OnbeatChannelOptions onbeat_channel_options(uint32_t policy,
                                                   size_t items,
                                                   size_t payload_bytes);

// Opens the channel with this name, for processes of the same user. The first call creates it.
// Later calls fail if their options differ. Not for a real-time thread: searches all processes of
// the machine.
//
// # Safety
// `name` ends with 0, `options` can be read and `channel` can be written. Null is refused.
OnbeatCode onbeat_channel_open(const char *name,
                               const struct OnbeatChannelOptions *options,
                               struct OnbeatChannel **channel);

// Opens an existing channel with this name, with the options that it has. Returns
// ONBEAT_CODE_NOT_THERE if there is none.
//
// # Safety
// The rules of onbeat_channel_open() apply.
OnbeatCode onbeat_channel_attach(const char *name, struct OnbeatChannel **channel);

// Creates a channel within this process.
//
// # Safety
// The rules of onbeat_channel_open() apply.
OnbeatCode onbeat_channel_new(const struct OnbeatChannelOptions *options,
                              struct OnbeatChannel **channel);

// Closes the handle. Producers and consumers of the channel stay. Null is allowed.
//
// # Safety
// The handle is null or open.
OnbeatCode onbeat_channel_close(struct OnbeatChannel *channel);

// Attaches the channel's producer. A channel has at most one producer at a time.
//
// # Safety
// `channel` is open, `producer` can be written. Null is refused.
OnbeatCode onbeat_producer_open(struct OnbeatChannel *channel, struct OnbeatProducer **producer);

// Sends a copy of these bytes. Waits for expected consumers, and for slow consumers if the policy
// requires it, until the deadline at the latest.
//
// # Safety
// `producer` is open, `data` has `length` bytes. Null is refused.
OnbeatCode onbeat_producer_send(struct OnbeatProducer *producer,
                                const void *data,
                                size_t length,
                                uint64_t deadline_ns);

// Sends an item as onbeat_producer_send() does, but without a copy: `fill` writes the payload in
// place.
//
// # Safety
// `producer` is open, and `fill` may be called with `context`. Null is refused, except for
// `context`.
OnbeatCode onbeat_producer_fill(struct OnbeatProducer *producer,
                                size_t length,
                                uint64_t deadline_ns,
                                OnbeatFill fill,
                                void *context);

// Announces the end of the items, and closes the producer. Null is allowed.
//
// # Safety
// The handle is null or open.
OnbeatCode onbeat_producer_close(struct OnbeatProducer *producer);

// Attaches a consumer to the channel.
//
// # Safety
// `channel` is open, `consumer` can be written. Null is refused.
OnbeatCode onbeat_consumer_open(struct OnbeatChannel *channel, struct OnbeatConsumer **consumer);

// Returns the size in bytes of the largest possible item; a buffer needs that size. Returns 0 for
// null.
//
// # Safety
// The handle is null or open.
size_t onbeat_consumer_payload_bytes(struct OnbeatConsumer *consumer);

// Receives the next item into a buffer, which must have room for the largest item. The item counts
// as consumed. Returns ONBEAT_CODE_NOTHING if no item came before the deadline, and
// ONBEAT_CODE_CLOSED after the last item.
//
// # Safety
// `consumer` is open, `buffer` has `capacity` bytes, `item` is null or can be written. Other nulls
// are refused.
OnbeatCode onbeat_consumer_receive(struct OnbeatConsumer *consumer,
                                   uint64_t deadline_ns,
                                   void *buffer,
                                   size_t capacity,
                                   struct OnbeatItem *item);

// Receives the next item as onbeat_consumer_receive() does, but without a copy: `take` reads it in
// place. The item counts as consumed when `take` returns.
//
// # Safety
// `consumer` is open, and `take` may be called with `context`. Null is refused, except for
// `context`.
OnbeatCode onbeat_consumer_take(struct OnbeatConsumer *consumer,
                                uint64_t deadline_ns,
                                OnbeatTakeItem take,
                                void *context);

// Copies the newest complete item, even if it was returned before, and skips older ones. Returns
// ONBEAT_CODE_NOTHING before the first item.
//
// # Safety
// The rules of onbeat_consumer_receive() apply.
OnbeatCode onbeat_consumer_newest(struct OnbeatConsumer *consumer,
                                  void *buffer,
                                  size_t capacity,
                                  struct OnbeatItem *item);

// Returns the number of items that newer ones replaced before the consumer received them. Returns
// 0 for null.
//
// # Safety
// The handle is null or open.
uint64_t onbeat_consumer_dropped(struct OnbeatConsumer *consumer);

// Detaches the consumer and closes the handle. Null is allowed.
//
// # Safety
// The handle is null or open.
OnbeatCode onbeat_consumer_close(struct OnbeatConsumer *consumer);

// Returns the text of the calling thread's last call that returned a negative code, in one line.
// The text is valid until the thread calls this function again. Never null.
const char *onbeat_last_error(void);

// Returns the general text of any code. Never null, and must not be freed.
const char *onbeat_code_text(int32_t code);

// Sends a copy of these bytes. Waits for a credit until the deadline. Writes the number of the
// message, counted from 0, to `number` unless that is null.
//
// # Safety
// `outgoing` is open, `data` has `length` bytes, `number` is null or can be written. Other nulls
// are refused.
OnbeatCode onbeat_send(struct OnbeatOutgoing *outgoing,
                       const void *data,
                       size_t length,
                       uint64_t deadline_ns,
                       uint64_t *number);

// Sends a message as onbeat_send() does, but without a copy: `fill` writes the message into the
// send buffer.
//
// # Safety
// The rules of onbeat_send() apply, and `fill` may be called with `context`.
OnbeatCode onbeat_send_filled(struct OnbeatOutgoing *outgoing,
                              size_t length,
                              uint64_t deadline_ns,
                              OnbeatFill fill,
                              void *context,
                              uint64_t *number);

// Sets the value that the peer's onbeat_read() fetches from now on. Does not wait.
//
// # Safety
// The rules of onbeat_send() apply.
OnbeatCode onbeat_publish(struct OnbeatOutgoing *outgoing, const void *data, size_t length);

// Closes this half. Over TCP, closing the second half waits until the peer has received
// everything, but at most 10 s without any progress. Null is allowed.
//
// # Safety
// The handle is null or open.
OnbeatCode onbeat_outgoing_close(struct OnbeatOutgoing *outgoing);

// Receives the next message into a buffer, which must have room for the largest message. The
// message counts as consumed. Returns ONBEAT_CODE_NOTHING if no message came before the deadline.
//
// # Safety
// `incoming` is open, `buffer` has `capacity` bytes, `length` and `number` are null or can be
// written. Other nulls are refused.
OnbeatCode onbeat_receive(struct OnbeatIncoming *incoming,
                          uint64_t deadline_ns,
                          void *buffer,
                          size_t capacity,
                          size_t *length,
                          uint64_t *number);

// Receives the next message as onbeat_receive() does, but without a copy: `take` reads it from the
// receive buffer. The message counts as consumed when `take` returns.
//
// # Safety
// `incoming` is open, and `take` may be called with `context`. Null is refused, except for
// `context`.
OnbeatCode onbeat_receive_taken(struct OnbeatIncoming *incoming,
                                uint64_t deadline_ns,
                                OnbeatTake take,
                                void *context);

// Copies the newest complete value that the peer has published, even if it was read before. The
// buffer must have room for the largest value. Returns ONBEAT_CODE_NOTHING if no value came before
// the deadline.
//
// # Safety
// The rules of onbeat_receive() apply.
OnbeatCode onbeat_read(struct OnbeatIncoming *incoming,
                       uint64_t deadline_ns,
                       void *buffer,
                       size_t capacity,
                       size_t *length);

// Closes this half. Null is allowed.
//
// # Safety
// The handle is null or open.
OnbeatCode onbeat_incoming_close(struct OnbeatIncoming *incoming);

// Makes a new key file with mode 0600. Fails if the file exists.
//
// # Safety
// `path` is null (refused) or ends with 0.
OnbeatCode onbeat_key_create_file(const char *path);

// Reads a key file. Only this user (or root) may have access to the file.
//
// # Safety
// `path` ends with 0, `key` can be written. Null is refused.
OnbeatCode onbeat_key_read_file(const char *path, struct OnbeatKey **key);

// Closes the handle of the key. Null is allowed.
//
// # Safety
// The handle is null or open.
OnbeatCode onbeat_key_close(struct OnbeatKey *key);

// Creates one end of a link between processes, in shared memory. One of the two ends listens.
// Either end may be created first.
//
// # Safety
// `name` ends with 0, `end` can be written. Null is refused.
OnbeatCode onbeat_end_shm(const char *name, bool listens, struct OnbeatEnd **end);

// Creates one end of a link over TCP. The end listens at this address ("0.0.0.0:7400"; with port 0
// the kernel chooses one), or connects to it. onbeat_end_in_clear() turns the encryption of the
// end off. onbeat_end_resume_within() sets for how long the end tries to resume a broken link. The
// key may be closed after this call.
//
// # Safety
// `address` ends with 0, `key` is open, `end` can be written. Null is refused.
OnbeatCode onbeat_end_tcp(const char *address,
                          bool listens,
                          struct OnbeatKey *key,
                          struct OnbeatEnd **end);

// Makes this end send without encryption after the handshake. Use this in private networks only.
// Both ends must do the same.
//
// # Safety
// `end` is null (refused) or open.
OnbeatCode onbeat_end_in_clear(struct OnbeatEnd *end);

// Sets for how long a broken link may be resumed, in ns. The default is 30 s.
//
// # Safety
// `end` is null (refused) or open.
OnbeatCode onbeat_end_resume_within(struct OnbeatEnd *end, uint64_t time_ns);

// Writes the address at which the end listens or to which it connects, with a terminating 0. A
// buffer of 64 bytes is enough.
//
// # Safety
// `end` is open, `buffer` has `capacity` bytes. Null is refused.
OnbeatCode onbeat_end_address(struct OnbeatEnd *end, char *buffer, size_t capacity);

// Computes how many bytes of memory an end of these sizes needs.
//
// # Safety
// `sizes` can be read, `bytes` can be written. Null is refused.
OnbeatCode onbeat_memory_bytes(const struct OnbeatSizes *sizes, size_t *bytes);

// Connects to the peer, checks it (key, version, sizes), and returns the two halves of the link.
// Both ends call this function. The call waits for the other end until the deadline.
//
// `memory` may be null, and must be null for a link in shared memory. Over TCP, it may also be the
// address of at least onbeat_memory_bytes() bytes. Only the link uses them until the process ends.
//
// # Safety
// `end` is open, `sizes` can be read, `outgoing` and `incoming` can be written. Null is refused.
OnbeatCode onbeat_end_initialize(struct OnbeatEnd *end,
                                 const struct OnbeatSizes *sizes,
                                 void *memory,
                                 size_t memory_bytes,
                                 uint64_t deadline_ns,
                                 struct OnbeatOutgoing **outgoing,
                                 struct OnbeatIncoming **incoming);

// Closes an end. The halves of its link stay. Null is allowed.
//
// # Safety
// The handle is null or open.
OnbeatCode onbeat_end_close(struct OnbeatEnd *end);

// Creates an executor without tasks. In recordings its name precedes the names of the tasks.
//
// # Safety
// `name` ends with 0, `tasks` can be written. Null is refused.
OnbeatCode onbeat_tasks_new(const char *name, struct OnbeatTasks **tasks);

// Adds a task that runs once per period: at `offset_ns`, `offset_ns` + `period_ns` and so on, on
// CLOCK_MONOTONIC. Writes the number of the task to `task` unless that is null.
//
// # Safety
// `tasks` is open, `name` ends with 0, `run` may be called with `context`. Null is refused, except
// for `context` and `task`.
OnbeatCode onbeat_tasks_every(struct OnbeatTasks *tasks,
                              const char *name,
                              uint64_t period_ns,
                              uint64_t offset_ns,
                              OnbeatRun run,
                              void *context,
                              uint32_t *task);

// Adds a task that runs for each item of a channel. The task is a consumer of the channel.
//
// # Safety
// The rules of onbeat_tasks_every() apply, and `channel` is open.
OnbeatCode onbeat_tasks_on_item(struct OnbeatTasks *tasks,
                                const char *name,
                                struct OnbeatChannel *channel,
                                OnbeatRunOnItem run,
                                void *context,
                                uint32_t *task);

// Adds a task that runs after each output of an earlier task. `after` is the number of that task.
//
// # Safety
// The rules of onbeat_tasks_every() apply.
OnbeatCode onbeat_tasks_after(struct OnbeatTasks *tasks,
                              const char *name,
                              uint32_t after,
                              OnbeatRun run,
                              void *context,
                              uint32_t *task);

// Runs the tasks on the calling thread, with its policy, priority and CPUs, until
// onbeat_tasks_stop(). Sleeps while no task is ready. Tasks that are ready at the stop no longer
// run.
//
// # Safety
// `tasks` is null (refused) or open.
OnbeatCode onbeat_tasks_run(struct OnbeatTasks *tasks);

// Ends onbeat_tasks_run(). If no thread is in onbeat_tasks_run(), its next call returns at once.
// May be called from any thread, a task or a signal handler.
//
// # Safety
// `tasks` is null (refused) or open.
OnbeatCode onbeat_tasks_stop(struct OnbeatTasks *tasks);

// Closes the tasks and their consumers. Null is allowed.
//
// # Safety
// The handle is null or open.
OnbeatCode onbeat_tasks_close(struct OnbeatTasks *tasks);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ONBEAT_H */

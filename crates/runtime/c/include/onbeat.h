// onbeat: channels without loss and links between machines, for C and C++.
//
// Made from crates/runtime/c/src by its tests: ONBEAT_WRITE_HEADER=1 cargo test -p onbeat-c --test header
//
// Functions return ONBEAT_CODE_OK (0), a positive code where there was nothing until the deadline, or a
// negative one where something is wrong; onbeat_last_error() has the text for the calling thread.
// Deadlines are in ns of CLOCK_MONOTONIC: onbeat_now_ns() + a time, 0 for not waiting, ONBEAT_FOREVER.
// A handle is for one thread at a time: another call meanwhile is refused with ONBEAT_CODE_BUSY.
// A handle that was closed must not be used again.

#ifndef ONBEAT_H
#define ONBEAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A deadline that never comes.
#define ONBEAT_FOREVER UINT64_MAX

// What a call has come to. Negative: something is wrong, and onbeat_last_error() has the text.
enum OnbeatCode
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Done.
  ONBEAT_CODE_OK = 0,
  // Nothing came until the deadline. No error.
  ONBEAT_CODE_NOTHING = 1,
  // A pointer is null that must not be.
  ONBEAT_CODE_NULL_POINTER = -1,
  // An argument has a value that it must not have.
  ONBEAT_CODE_ARGUMENT = -2,
  // A message or value is larger than agreed.
  ONBEAT_CODE_TOO_LARGE = -3,
  // A buffer is smaller than the largest message that can come. Nothing was taken.
  ONBEAT_CODE_TOO_SMALL = -4,
  // The other side has not consumed enough until the deadline. Nothing was sent.
  ONBEAT_CODE_NO_CREDIT = -5,
  // The other side has closed, and everything that it had sent was received.
  ONBEAT_CODE_CLOSED = -6,
  // The other side died, or cannot be reached any more.
  ONBEAT_CODE_GONE = -7,
  // The peer, which knew the key, has sent what no onbeat sends.
  ONBEAT_CODE_PROTOCOL = -8,
  // One end does not take the other: key, version, sizes or options differ, or it has a peer.
  ONBEAT_CODE_REFUSED = -9,
  // No peer came until the deadline.
  ONBEAT_CODE_NO_PEER = -10,
  // The kernel has refused a call.
  ONBEAT_CODE_SYSTEM = -11,
  // There is no channel of that name.
  ONBEAT_CODE_NOT_THERE = -12,
  // There is a channel of that name that is not as asked for.
  ONBEAT_CODE_MISMATCH = -13,
  // All places are taken: a channel has one producer and a limited number of consumers.
  ONBEAT_CODE_IN_USE = -14,
  // The handle is in use: by another thread, or by the callback from which the call comes.
  ONBEAT_CODE_BUSY = -15,
  // The key file cannot be used.
  ONBEAT_CODE_KEY = -16,
  // A defect of onbeat. The handle can only be closed.
  ONBEAT_CODE_PANIC = -17,
  // All payloads of the channel are in use.
  ONBEAT_CODE_EXHAUSTED = -18,
  // Fewer consumers than expected have attached until the deadline. Nothing was sent.
  ONBEAT_CODE_NOT_STARTED = -19,
  // A promise of the link (freshness, integrity, deadline, liveliness) is broken.
  ONBEAT_CODE_BREACH = -20,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum OnbeatCode OnbeatCode;
#else
typedef int32_t OnbeatCode;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What happens when a consumer is slower than the producer.
enum OnbeatPolicy
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // A consumer sees the newest complete value; nobody waits.
  ONBEAT_POLICY_LATEST = 0,
  // A new item replaces the oldest of `items`. Drops are counted.
  ONBEAT_POLICY_DROP_OLDEST = 1,
  // The producer waits while a consumer has not consumed `items`. Nothing is lost.
  ONBEAT_POLICY_CREDIT = 2,
  // Producer and consumer exchange buffers of `items`. Nothing is lost.
  ONBEAT_POLICY_SWAP = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum OnbeatPolicy OnbeatPolicy;
#else
typedef uint32_t OnbeatPolicy;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What happens when a participant in another process dies.
enum OnbeatOnDeath
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // The others continue.
  ONBEAT_ON_DEATH_CONTINUE = 0,
  // The producer waits until as many consumers as expected are attached again.
  ONBEAT_ON_DEATH_PAUSE = 1,
  // Sending fails, and so does receiving once all items are received.
  ONBEAT_ON_DEATH_FAIL = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum OnbeatOnDeath OnbeatOnDeath;
#else
typedef uint32_t OnbeatOnDeath;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What a task returns.
enum OnbeatTaskResult
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Tasks that follow are not activated.
  ONBEAT_TASK_RESULT_NOTHING = 0,
  // Tasks that follow are activated.
  ONBEAT_TASK_RESULT_OUTPUT = 1,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum OnbeatTaskResult OnbeatTaskResult;
#else
typedef uint32_t OnbeatTaskResult;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// A channel: one producer, some consumers.
typedef struct OnbeatChannel OnbeatChannel;

// A receiving side of a channel.
typedef struct OnbeatConsumer OnbeatConsumer;

// One of the two ends, before and while it has a peer.
typedef struct OnbeatEnd OnbeatEnd;

// The half of a link that receives. Closing it makes the peer's sends fail.
typedef struct OnbeatIncoming OnbeatIncoming;

// A key that both ends of a link have.
typedef struct OnbeatKey OnbeatKey;

// The half of a link that sends. Closing it tells the peer that nothing more comes.
typedef struct OnbeatOutgoing OnbeatOutgoing;

// The sending side of a channel.
typedef struct OnbeatProducer OnbeatProducer;

// Tasks that run on one thread, in the order in which they were added.
typedef struct OnbeatTasks OnbeatTasks;

// What a channel is created with: begin with onbeat_channel_options().
typedef struct OnbeatChannelOptions {
  // One of OnbeatPolicy.
  uint32_t policy;
  // Items of the policy; nothing for ONBEAT_POLICY_LATEST.
  size_t items;
  // With ONBEAT_POLICY_SWAP: an idle consumer gets a buffer that is not full yet, too.
  bool flush;
  // Bytes of the largest payload.
  size_t payload_bytes;
  // Limit of consumers, 1 to 64.
  size_t consumers;
  // Limit of items that one consumer has at a time.
  size_t borrowed;
  // Consumers that must attach before the first item is sent, so that none misses it.
  size_t expected;
  // One of OnbeatOnDeath.
  uint32_t on_death;
} OnbeatChannelOptions;

// Writes a message where it stays. Must return, must not throw, and must not use the handle.
typedef void (*OnbeatFill)(void *context, uint8_t *bytes, size_t length);

// What is known of an item beside its bytes.
typedef struct OnbeatItem {
  // Number of the item since the channel was created, from 0: a gap is a loss.
  uint64_t sequence;
  // When it was sent, in ns of CLOCK_MONOTONIC.
  uint64_t sent_ns;
  // Its length in bytes.
  size_t bytes;
} OnbeatItem;

// Reads an item where it stays. Must return, must not throw, and must not use the handle.
typedef void (*OnbeatTakeItem)(void *context, const uint8_t *bytes, const struct OnbeatItem *item);

// Reads a message or value where it stays. Must return, must not throw, and must not use the
// handle. `number` is 0 for a value.
typedef void (*OnbeatTake)(void *context, uint64_t number, const uint8_t *bytes, size_t length);

// What both ends must agree on.
typedef struct OnbeatSizes {
  // Messages on their way in each direction, sent and not consumed yet: 1 to 1024.
  size_t credits;
  // Bytes of the largest message: 1 to 1 GiB.
  size_t message_bytes;
  // Bytes of the largest value: 0 (none) to 1 GiB.
  size_t value_bytes;
} OnbeatSizes;

// A task: returns one of OnbeatTaskResult. Must return, and must not throw.
typedef uint32_t (*OnbeatRun)(void *context);

// A task that gets an item, where it was written: returns one of OnbeatTaskResult. Must return, and
// must not throw.
typedef uint32_t (*OnbeatRunOnItem)(void *context,
                                    const uint8_t *bytes,
                                    const struct OnbeatItem *item);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Now, in ns of CLOCK_MONOTONIC. A deadline is this plus a time.
uint64_t onbeat_now_ns(void);

// Options for four consumers, of which one is expected. `items` is nothing for
// ONBEAT_POLICY_LATEST.
struct OnbeatChannelOptions onbeat_channel_options(uint32_t policy,
                                                   size_t items,
                                                   size_t payload_bytes);

// The channel of that name, for processes of the same user. The first call creates it; later ones
// must have the same options. Searches all processes of the machine: not for a real-time thread.
//
// # Safety
// `name` ends with 0, `options` and `channel` can be read and written; null is refused.
OnbeatCode onbeat_channel_open(const char *name,
                               const struct OnbeatChannelOptions *options,
                               struct OnbeatChannel **channel);

// The channel of that name, as it is; ONBEAT_CODE_NOT_THERE if there is none.
//
// # Safety
// As for onbeat_channel_open().
OnbeatCode onbeat_channel_attach(const char *name, struct OnbeatChannel **channel);

// A channel within this process.
//
// # Safety
// As for onbeat_channel_open().
OnbeatCode onbeat_channel_new(const struct OnbeatChannelOptions *options,
                              struct OnbeatChannel **channel);

// Closes the handle; producers and consumers of the channel stay. Null is fine.
//
// # Safety
// The handle is null, or open.
OnbeatCode onbeat_channel_close(struct OnbeatChannel *channel);

// The channel's producer: there is one at a time.
//
// # Safety
// `channel` is open, `producer` can be written; null is refused.
OnbeatCode onbeat_producer_open(struct OnbeatChannel *channel, struct OnbeatProducer **producer);

// Sends a copy of these bytes; waits until the deadline if the policy says so.
//
// # Safety
// `producer` is open, `data` has `length` bytes; null is refused.
OnbeatCode onbeat_producer_send(struct OnbeatProducer *producer,
                                const void *data,
                                size_t length,
                                uint64_t deadline_ns);

// As onbeat_producer_send(), without a copy: `fill` writes the payload where it is read.
//
// # Safety
// `producer` is open, and `fill` may be called with `context`; null is refused, for `context` not.
OnbeatCode onbeat_producer_fill(struct OnbeatProducer *producer,
                                size_t length,
                                uint64_t deadline_ns,
                                OnbeatFill fill,
                                void *context);

// Announces the end of the items, and closes. Null is fine.
//
// # Safety
// The handle is null, or open.
OnbeatCode onbeat_producer_close(struct OnbeatProducer *producer);

// A consumer of the channel.
//
// # Safety
// `channel` is open, `consumer` can be written; null is refused.
OnbeatCode onbeat_consumer_open(struct OnbeatChannel *channel, struct OnbeatConsumer **consumer);

// Bytes of the largest item that can come, and so of a buffer for it; 0 for null.
//
// # Safety
// The handle is null, or open.
size_t onbeat_consumer_payload_bytes(struct OnbeatConsumer *consumer);

// Receives the next item into a buffer, which must have room for the largest. The item counts as
// consumed. ONBEAT_CODE_NOTHING if none came until the deadline, ONBEAT_CODE_CLOSED after the last.
//
// # Safety
// `consumer` is open, `buffer` has `capacity` bytes, `item` is null or can be written; other nulls
// are refused.
OnbeatCode onbeat_consumer_receive(struct OnbeatConsumer *consumer,
                                   uint64_t deadline_ns,
                                   void *buffer,
                                   size_t capacity,
                                   struct OnbeatItem *item);

// As onbeat_consumer_receive(), without a copy: `take` reads the item where it was written. It
// counts as consumed when `take` returns.
//
// # Safety
// `consumer` is open, and `take` may be called with `context`; null is refused, for `context` not.
OnbeatCode onbeat_consumer_take(struct OnbeatConsumer *consumer,
                                uint64_t deadline_ns,
                                OnbeatTakeItem take,
                                void *context);

// Copies the newest complete item, even if it was there before; skips older ones.
// ONBEAT_CODE_NOTHING before the first.
//
// # Safety
// As for onbeat_consumer_receive().
OnbeatCode onbeat_consumer_newest(struct OnbeatConsumer *consumer,
                                  void *buffer,
                                  size_t capacity,
                                  struct OnbeatItem *item);

// Items that were dropped for newer ones before the consumer received them; 0 for null.
//
// # Safety
// The handle is null, or open.
uint64_t onbeat_consumer_dropped(struct OnbeatConsumer *consumer);

// Leaves the channel. Null is fine.
//
// # Safety
// The handle is null, or open.
OnbeatCode onbeat_consumer_close(struct OnbeatConsumer *consumer);

// The text of the calling thread's last call that returned a negative code: one line that names
// what was wrong. Valid until the thread calls this function again. Never null.
const char *onbeat_last_error(void);

// What a code means, whatever the call was. For any number; never null, never to be freed.
const char *onbeat_code_text(int32_t code);

// Sends a copy of these bytes; waits for a credit until the deadline. `number` (or null) is the
// message's, from 0.
//
// # Safety
// `outgoing` is open, `data` has `length` bytes, `number` is null or can be written; other nulls
// are refused.
OnbeatCode onbeat_send(struct OnbeatOutgoing *outgoing,
                       const void *data,
                       size_t length,
                       uint64_t deadline_ns,
                       uint64_t *number);

// As onbeat_send(), without a copy: `fill` writes the message where it leaves.
//
// # Safety
// As for onbeat_send(); `fill` may be called with `context`.
OnbeatCode onbeat_send_filled(struct OnbeatOutgoing *outgoing,
                              size_t length,
                              uint64_t deadline_ns,
                              OnbeatFill fill,
                              void *context,
                              uint64_t *number);

// Sets the value that the peer's onbeat_read() fetches from now on. Waits for nobody.
//
// # Safety
// As for onbeat_send().
OnbeatCode onbeat_publish(struct OnbeatOutgoing *outgoing, const void *data, size_t length);

// Closes this half. Over TCP closing the second half waits until the peer has everything that was
// sent, and 10 s without any progress at most. Null is fine.
//
// # Safety
// The handle is null, or open.
OnbeatCode onbeat_outgoing_close(struct OnbeatOutgoing *outgoing);

// Receives the next message into a buffer, which must have room for the largest. The message counts
// as consumed. ONBEAT_CODE_NOTHING if none came until the deadline.
//
// # Safety
// `incoming` is open, `buffer` has `capacity` bytes, `length` and `number` are null or can be
// written; other nulls are refused.
OnbeatCode onbeat_receive(struct OnbeatIncoming *incoming,
                          uint64_t deadline_ns,
                          void *buffer,
                          size_t capacity,
                          size_t *length,
                          uint64_t *number);

// As onbeat_receive(), without a copy: `take` reads the message where it came. It counts as
// consumed when `take` returns.
//
// # Safety
// `incoming` is open, and `take` may be called with `context`; null is refused, for `context` not.
OnbeatCode onbeat_receive_taken(struct OnbeatIncoming *incoming,
                                uint64_t deadline_ns,
                                OnbeatTake take,
                                void *context);

// Copies the newest value that the peer has published, complete, also if it was read before. The
// buffer must have room for the largest. ONBEAT_CODE_NOTHING if there is none until the deadline.
//
// # Safety
// As for onbeat_receive().
OnbeatCode onbeat_read(struct OnbeatIncoming *incoming,
                       uint64_t deadline_ns,
                       void *buffer,
                       size_t capacity,
                       size_t *length);

// Closes this half. Null is fine.
//
// # Safety
// The handle is null, or open.
OnbeatCode onbeat_incoming_close(struct OnbeatIncoming *incoming);

// Makes a new key file with mode 0600; refused if there is a file.
//
// # Safety
// `path` is null (refused) or ends with 0.
OnbeatCode onbeat_key_create_file(const char *path);

// Reads a key file, which must be this user's (or root's) alone.
//
// # Safety
// `path` ends with 0, `key` can be written; null is refused.
OnbeatCode onbeat_key_read_file(const char *path, struct OnbeatKey **key);

// Forgets the key. Null is fine.
//
// # Safety
// The handle is null, or open.
OnbeatCode onbeat_key_close(struct OnbeatKey *key);

// One end of a link between processes, in shared memory. One of the two listens; either may come
// first.
//
// # Safety
// `name` ends with 0, `end` can be written; null is refused.
OnbeatCode onbeat_end_shm(const char *name, bool listens, struct OnbeatEnd **end);

// One end of a link over TCP: it listens at this address ("0.0.0.0:7400"; with port 0 the kernel
// chooses one), or connects to it. Encrypted and resumed as onbeat_end_in_clear() and
// onbeat_end_resume_within() say. The key may be closed afterwards.
//
// # Safety
// `address` ends with 0, `key` is open, `end` can be written; null is refused.
OnbeatCode onbeat_end_tcp(const char *address,
                          bool listens,
                          struct OnbeatKey *key,
                          struct OnbeatEnd **end);

// Without encryption after the handshake: for networks of one's own. Both ends must do the same.
//
// # Safety
// `end` is null (refused) or open.
OnbeatCode onbeat_end_in_clear(struct OnbeatEnd *end);

// How long a broken link is to be resumed, in ns; 30 s by default.
//
// # Safety
// `end` is null (refused) or open.
OnbeatCode onbeat_end_resume_within(struct OnbeatEnd *end, uint64_t time_ns);

// The address at which the end listens or to which it connects, with its 0, for a buffer of 64
// bytes.
//
// # Safety
// `end` is open, `buffer` has `capacity` bytes; null is refused.
OnbeatCode onbeat_end_address(struct OnbeatEnd *end, char *buffer, size_t capacity);

// Bytes of memory that an end of these sizes needs.
//
// # Safety
// `sizes` can be read, `bytes` can be written; null is refused.
OnbeatCode onbeat_memory_bytes(const struct OnbeatSizes *sizes, size_t *bytes);

// Connects to the peer, makes sure of it (key, version, sizes), and gives the two halves of the
// link. Both ends call it; it waits for the other until the deadline. `memory` is null, or of
// onbeat_memory_bytes() and the link's alone until the process ends (TCP only).
//
// # Safety
// `end` is open, `sizes` can be read, `outgoing` and `incoming` can be written; null is refused.
OnbeatCode onbeat_end_initialize(struct OnbeatEnd *end,
                                 const struct OnbeatSizes *sizes,
                                 void *memory,
                                 size_t memory_bytes,
                                 uint64_t deadline_ns,
                                 struct OnbeatOutgoing **outgoing,
                                 struct OnbeatIncoming **incoming);

// Closes an end: the halves of a link stay. Null is fine.
//
// # Safety
// The handle is null, or open.
OnbeatCode onbeat_end_close(struct OnbeatEnd *end);

// No tasks yet. Recordings show the name before those of the tasks.
//
// # Safety
// `name` ends with 0, `tasks` can be written; null is refused.
OnbeatCode onbeat_tasks_new(const char *name, struct OnbeatTasks **tasks);

// Adds a task that runs once per period, from `offset_ns` on; `task` (or null) gets its number.
//
// # Safety
// `tasks` is open, `name` ends with 0, `run` may be called with `context`; null is refused, for
// `context` and `task` not.
OnbeatCode onbeat_tasks_every(struct OnbeatTasks *tasks,
                              const char *name,
                              uint64_t period_ns,
                              uint64_t offset_ns,
                              OnbeatRun run,
                              void *context,
                              uint32_t *task);

// Adds a task that runs for each item of a channel, of which it is a consumer.
//
// # Safety
// As for onbeat_tasks_every(); `channel` is open.
OnbeatCode onbeat_tasks_on_item(struct OnbeatTasks *tasks,
                                const char *name,
                                struct OnbeatChannel *channel,
                                OnbeatRunOnItem run,
                                void *context,
                                uint32_t *task);

// Adds a task that runs after each output of an earlier one, `after` by its number.
//
// # Safety
// As for onbeat_tasks_every().
OnbeatCode onbeat_tasks_after(struct OnbeatTasks *tasks,
                              const char *name,
                              uint32_t after,
                              OnbeatRun run,
                              void *context,
                              uint32_t *task);

// Runs the tasks on the calling thread, with its policy, priority and CPUs, and sleeps in between,
// until onbeat_tasks_stop(). Tasks that are ready then no longer run.
//
// # Safety
// `tasks` is null (refused) or open.
OnbeatCode onbeat_tasks_run(struct OnbeatTasks *tasks);

// Ends onbeat_tasks_run(), now or as soon as it is called. From any thread, a task or a signal
// handler.
//
// # Safety
// `tasks` is null (refused) or open.
OnbeatCode onbeat_tasks_stop(struct OnbeatTasks *tasks);

// Closes the tasks and their consumers. Null is fine.
//
// # Safety
// The handle is null, or open.
OnbeatCode onbeat_tasks_close(struct OnbeatTasks *tasks);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ONBEAT_H */

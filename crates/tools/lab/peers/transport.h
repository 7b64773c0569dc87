// The roles of the `transport` experiment, for peers in C and C++: pacing, stamps, samples.
//
// role=pub, sub, pair (both in one process, a thread each) or thread (both in one thread);
// readers=N is the number of readers that a publisher waits for; wait=sleep|spin is how a receiver
// waits. A process that spins takes all subscriptions. README.md has the rest of the protocol.
//
// role=relay takes each message and sends it on to `to=` with `other_bytes=` bytes and the due time
// of the first message of the chain. role=ping publishes, and takes the answers that arrive by
// `back=` with `other_bytes=` bytes.
#pragma once

#include "protocol.h"

#include <pthread.h>
#include <sched.h>

#ifdef __cplusplus
#define PEER_ALIGN alignas(64)
#else
#define PEER_ALIGN _Alignas(64)
#endif

// The number of messages before the first that counts. They warm up pools, caches and connections.
enum { PEER_WARM_UP = 20, PEER_SIZES = 16, PEER_READERS = 16 };

// The beginning of every message. Sequence numbers of the warm-up are negative.
struct stamp {
  int64_t sequence, intended_ns, sent_ns;
};
struct sample {
  struct stamp stamp;
  int64_t received_ns;
};

// The functions that each middleware's peer provides. An endpoint is for one topic and size.
struct peer {
  const char *name;
  void *(*writer)(const char *topic, size_t bytes);
  void *(*reader)(const char *topic, size_t bytes);
  // Reports whether `readers` readers are connected.
  bool (*matched)(void *writer, int readers);
  // Loans or takes a buffer, fills it with `peer_fill`, and sends it.
  void (*send)(void *writer, const struct stamp *stamp, size_t bytes);
  // Takes a message with `peer_arrived`. Waits until the deadline at most. 0 means no wait.
  bool (*receive)(void *reader, int64_t deadline_ns, size_t bytes, struct sample *sample);
};

// Both sides are in one process. Set before any endpoint is created.
static bool peer_within;

// Writes the first and the last bytes of a message, as a sender does that fills its payload in
// place.
static inline void peer_fill(void *payload, size_t bytes, const struct stamp *stamp) {
  memcpy(payload, stamp, sizeof *stamp);
  ((volatile uint8_t *)payload)[bytes - 1] = (uint8_t)stamp->sequence;
}

// Reads the first and the last bytes of a message that has just arrived, and the clock.
static inline void peer_arrived(const void *payload, size_t bytes, struct sample *sample) {
  memcpy(&sample->stamp, payload, sizeof sample->stamp);
  uint8_t last = ((const volatile uint8_t *)payload)[bytes - 1];
  sample->received_ns = peer_now();
  if (last != (uint8_t)sample->stamp.sequence) peer_die("an incomplete message arrived");
}

struct peer_run {
  const struct peer *peer;
  const char *name;
  int readers;
  bool spin;
  // Endpoints by size. They are created when first needed, and kept.
  size_t sizes[PEER_SIZES];
  void *writers[PEER_SIZES];
  void *taking[PEER_SIZES][PEER_READERS];
  // The current run and its begin.
  int64_t start_ns;
  size_t bytes;
  double rate_hz;
  long count;
  char file[512];
  struct peer_usage began;
  // The run to which a relay sends, or from which a ping takes the answers.
  struct peer_run *other;
};

static inline int peer_slot(struct peer_run *run) {
  int i = 0;
  while (i < PEER_SIZES && run->sizes[i] != 0 && run->sizes[i] != run->bytes) i++;
  if (i == PEER_SIZES) peer_die("more than %d sizes", PEER_SIZES);
  run->sizes[i] = run->bytes;
  return i;
}

static inline void peer_topic(char *topic, size_t room, const struct peer_run *run) {
  snprintf(topic, room, "%s_%zu", run->name, run->bytes);
}

static inline void peer_open_readers(struct peer_run *run, int readers) {
  int slot = peer_slot(run);
  char topic[128];
  peer_topic(topic, sizeof topic, run);
  for (int i = 0; i < readers; i++)
    if (!run->taking[slot][i]) run->taking[slot][i] = run->peer->reader(topic, run->bytes);
}

static inline void peer_open_writer(struct peer_run *run) {
  int slot = peer_slot(run);
  if (!run->writers[slot]) {
    char topic[128];
    peer_topic(topic, sizeof topic, run);
    run->writers[slot] = run->peer->writer(topic, run->bytes);
  }
}

static inline void peer_await_readers(struct peer_run *run) {
  void *writer = run->writers[peer_slot(run)];
  int64_t limit = peer_now() + 30000000000LL;
  while (!run->peer->matched(writer, run->readers)) {
    if (peer_now() > limit) peer_die("%s: %d readers did not connect within 30 s", run->peer->name, run->readers);
    usleep(2000);
  }
}

// The sending side of a run. The grid of intended times is fixed: a late message does not move the
// next one.
static inline void peer_publish(struct peer_run *run) {
  void *writer = run->writers[peer_slot(run)];
  int64_t period = (int64_t)(1e9 / run->rate_hz), intended = run->start_ns;
  struct peer_usage began = peer_used();
  for (long sequence = -PEER_WARM_UP; sequence < run->count; sequence++, intended += period) {
    if (sequence == 0) began = peer_used();
    peer_sleep_until(intended);
    struct stamp stamp = {sequence, intended, peer_now()};
    run->peer->send(writer, &stamp, run->bytes);
  }
  run->began = began;
}

static inline void peer_write(const struct peer_run *run, const struct sample *samples, size_t count) {
  FILE *out = fopen(run->file, "wb");
  if (!out) peer_die("writing %s: %s", run->file, strerror(errno));
  size_t written = fwrite(samples, sizeof *samples, count, out);
  if (fclose(out) != 0 || written != count) peer_die("writing %s: %s", run->file, strerror(errno));
}

// Sends a received message on. The latency of the next hop counts from now, that of the chain from
// the due time.
static inline void peer_pass_on(struct peer_run *to, const struct sample *sample) {
  struct stamp stamp = {sample->stamp.sequence, sample->stamp.intended_ns, peer_now()};
  to->peer->send(to->writers[peer_slot(to)], &stamp, to->bytes);
}

// The receiving side of a run. It ends with the last message of each subscription, or after two
// seconds without a message.
static inline void peer_receive(struct peer_run *run) {
  int slot = peer_slot(run), subscriptions = run->spin ? run->readers : 1, open = subscriptions;
  size_t room = (size_t)run->count * (size_t)subscriptions, count = 0;
  struct sample *samples = (struct sample *)malloc(room * sizeof *samples);
  if (!samples) peer_die("no memory for %zu samples", room);
  memset(samples, 0, room * sizeof *samples);  // no page faults while measuring
  bool over[PEER_READERS] = {false};
  int64_t limit = peer_now() + 30000000000LL;
  unsigned long polls = 0;
  for (int i = 0; open > 0; i = (i + 1) % subscriptions) {
    struct sample sample;
    if (!run->peer->receive(run->taking[slot][i], run->spin ? 0 : limit, run->bytes, &sample)) {
      // Reading the clock in each iteration would add to the latency.
      if ((!run->spin || ++polls % 4096 == 0) && peer_now() > limit) break;
      continue;
    }
    if (run->other) peer_pass_on(run->other, &sample);
    if (sample.stamp.sequence < 0) continue;
    if (count == 0) run->began = peer_used();
    limit = sample.received_ns + 2000000000LL;
    if (count < room) samples[count++] = sample;
    if (sample.stamp.sequence == run->count - 1 && !over[i]) {
      over[i] = true;
      open--;
    }
  }
  if (count == 0) run->began = peer_used();
  long counted = count > 0 ? (long)count - 1 : 0;
  if (!peer_within) protocol_done(counted, &run->began), protocol_await(PROTOCOL_STOP);
  peer_write(run, samples, count);
  if (!peer_within) protocol_written();
  free(samples);
}

// Publishes and takes in turn, all on this thread.
static inline void peer_alternate(struct peer_run *run) {
  int slot = peer_slot(run);
  struct sample *samples = (struct sample *)calloc((size_t)run->count, sizeof *samples);
  if (!samples) peer_die("no memory for %ld samples", run->count);
  memset(samples, 0, (size_t)run->count * sizeof *samples);
  int64_t period = (int64_t)(1e9 / run->rate_hz), intended = run->start_ns;
  size_t count = 0;
  run->began = peer_used();
  for (long sequence = -PEER_WARM_UP; sequence < run->count; sequence++, intended += period) {
    if (sequence == 0) run->began = peer_used();
    peer_sleep_until(intended);
    struct stamp stamp = {sequence, intended, peer_now()};
    run->peer->send(run->writers[slot], &stamp, run->bytes);
    struct sample sample;
    int64_t limit = stamp.sent_ns + 1000000000LL;
    bool came = run->peer->receive(run->taking[slot][0], limit, run->bytes, &sample);
    if (came && sample.stamp.sequence >= 0 && count < (size_t)run->count) samples[count++] = sample;
  }
  protocol_done((long)count, &run->began);
  protocol_await(PROTOCOL_STOP);
  peer_write(run, samples, count);
  protocol_written();
  free(samples);
}

static inline void peer_pin(long cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET((size_t)cpu, &set);
  // This fails without a second CPU. Both threads then share the one CPU.
  sched_setaffinity(0, sizeof set, &set);
}

static inline void *peer_receive_beside(void *run) {
  peer_pin(1);
  peer_receive((struct peer_run *)run);
  return NULL;
}

static inline void peer_pair(struct peer_run *run) {
  struct peer_run beside = *run;
  pthread_t thread;
  if (pthread_create(&thread, NULL, peer_receive_beside, &beside) != 0) peer_die("cannot start a thread");
  peer_publish(run);
  pthread_join(thread, NULL);
  protocol_done(run->count, &run->began);
  protocol_await(PROTOCOL_STOP);
  protocol_written();
}

static inline void *peer_receive_back(void *run) {
  peer_receive((struct peer_run *)run);
  return NULL;
}

static inline void peer_ping(struct peer_run *run) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, peer_receive_back, run->other) != 0) peer_die("cannot start a thread");
  peer_publish(run);
  pthread_join(thread, NULL);
  protocol_done(run->count, &run->began);
  protocol_await(PROTOCOL_STOP);
  protocol_written();
}

// Creates the run of the other direction of a relay or a ping.
static inline struct peer_run *peer_other(const struct peer_run *run, const struct protocol_words *words,
                                          const char *topic) {
  static struct peer_run other;
  other.peer = run->peer;
  other.name = protocol_text(words, topic);
  other.readers = 1;
  return &other;
}

// Copies the settings of a run.
static inline void peer_prepare(struct peer_run *run, const struct protocol_words *words) {
  run->bytes = (size_t)protocol_number(words, "bytes");
  run->rate_hz = protocol_number(words, "rate_hz");
  run->count = (long)protocol_number(words, "count");
  snprintf(run->file, sizeof run->file, "%s", protocol_text(words, "file"));
  if (run->bytes < 64) peer_die("a message has at least 64 bytes");
  if (!run->other) return;
  run->other->bytes = (size_t)protocol_number(words, "other_bytes");
  run->other->count = run->count;
  snprintf(run->other->file, sizeof run->other->file, "%s", run->file);
  if (run->other->bytes < 64) peer_die("a message has at least 64 bytes");
}

// Creates the endpoints that a run needs and waits until readers are connected.
static inline void peer_connect(struct peer_run *run, bool sends, bool takes) {
  if (takes) peer_open_readers(run, run->spin ? run->readers : 1);
  if (!sends) return;
  bool fresh = !run->writers[peer_slot(run)];
  peer_open_writer(run);
  peer_await_readers(run);
  // The readers' side of a new connection may need more time.
  if (fresh) usleep(100000);
}

static inline int peer_main(int argc, char **argv, const struct peer *peer) {
  static struct peer_run run;
  struct protocol_words words = protocol_arguments(argc, argv);
  const char *role = protocol_text(&words, "role");
  bool pair = strcmp(role, "pair") == 0, thread = strcmp(role, "thread") == 0;
  bool relay = strcmp(role, "relay") == 0, ping = strcmp(role, "ping") == 0;
  bool sends = pair || thread || ping || strcmp(role, "pub") == 0;
  bool takes = pair || thread || relay || strcmp(role, "sub") == 0;
  if (!sends && !takes) peer_die("role=%s is not one of pub, sub, pair, thread, relay, ping", role);
  run.peer = peer;
  run.name = protocol_text(&words, "name");
  run.readers = (int)protocol_number(&words, "readers");
  run.spin = strcmp(protocol_text(&words, "wait"), "spin") == 0;
  if (run.readers > PEER_READERS) peer_die("readers= must be 1 to %d", PEER_READERS);
  peer_within = pair || thread || ping;
  if (peer_within || relay) run.readers = 1;
  if (relay || ping) run.other = peer_other(&run, &words, relay ? "to" : "back");
  if (pair) peer_pin(0);
  struct protocol_command command;
  for (protocol_read(&command); command.kind != PROTOCOL_END; protocol_read(&command)) {
    if (command.kind != PROTOCOL_RUN) peer_die("the experiment sent a command out of order");
    peer_prepare(&run, &command.words);
    peer_connect(&run, sends && !ping, takes);
    if (relay) peer_connect(run.other, true, false);
    if (ping) peer_connect(run.other, false, true), peer_connect(&run, true, false);
    run.start_ns = protocol_await_start();
    if (pair) peer_pair(&run);
    else if (thread) peer_alternate(&run);
    else if (ping) peer_ping(&run);
    else if (takes) peer_receive(&run);
    else {
      peer_publish(&run);
      protocol_done(run.count, &run.began);
      protocol_await(PROTOCOL_STOP);
      protocol_written();
    }
  }
  return 0;
}

// What the peers in C and C++ share: command line, pacing, stamps, and what a run used.
//
//   PEER ROLE NAME READERS sleep|spin
//
// ROLE is pub, sub, pair (both in one process, a thread each) or thread (both in one thread). Then
// standard input says, line by line, what to do, and its end ends the program:
//
//   run BYTES RATE_HZ COUNT FILE
//
// A side that receives says `open` when it can be sent to, and writes FILE: four 64-bit numbers for
// each message (sequence, intended, sent and received time in ns of CLOCK_MONOTONIC). Each side
// ends a run with
//
//   done MESSAGES CPU_NS VOLUNTARY INVOLUNTARY
//
// CPU time and context switches of the whole process while those messages were sent or received.
#pragma once

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#ifdef __cplusplus
#define PEER_ALIGN alignas(64)
#else
#define PEER_ALIGN _Alignas(64)
#endif

// Messages before the first that counts: pools, caches and connections are warm after them.
enum { PEER_WARM_UP = 20, PEER_SIZES = 16, PEER_READERS = 16 };

// What every message begins with. Sequence numbers of the warm-up are negative.
struct stamp {
  int64_t sequence, intended_ns, sent_ns;
};
struct sample {
  struct stamp stamp;
  int64_t received_ns;
};

// What a peer has to bring. An endpoint is for one topic and size.
struct peer {
  const char *name;
  void *(*writer)(const char *topic, size_t bytes);
  void *(*reader)(const char *topic, size_t bytes);
  // Whether so many readers are connected.
  bool (*matched)(void *writer, int readers);
  // Loans or takes a buffer, fills it with `peer_fill`, sends it.
  void (*send)(void *writer, const struct stamp *stamp, size_t bytes);
  // Takes a message with `peer_arrived`, waiting until a deadline at most; 0: does not wait.
  bool (*receive)(void *reader, int64_t deadline_ns, size_t bytes, struct sample *sample);
};

// Set before any endpoint is made: both sides are in one process.
static bool peer_within;

__attribute__((noreturn, format(printf, 1, 2))) static void peer_die(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
  exit(1);
}

static inline int64_t peer_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static inline struct timespec peer_timespec(int64_t ns) {
  struct timespec t = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
  return t;
}

static inline void peer_sleep_until(int64_t ns) {
  struct timespec t = peer_timespec(ns);
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {}
}

// Writes what a message begins and ends with, as a sender that fills its payload in place would
// begin and end.
static inline void peer_fill(void *payload, size_t bytes, const struct stamp *stamp) {
  memcpy(payload, stamp, sizeof *stamp);
  ((volatile uint8_t *)payload)[bytes - 1] = (uint8_t)stamp->sequence;
}

// Notes a message that can be read now: looks at its first and its last bytes.
static inline void peer_arrived(const void *payload, size_t bytes, struct sample *sample) {
  memcpy(&sample->stamp, payload, sizeof sample->stamp);
  uint8_t last = ((const volatile uint8_t *)payload)[bytes - 1];
  sample->received_ns = peer_now();
  if (last != (uint8_t)sample->stamp.sequence) peer_die("a message arrived that was not whole");
}

struct peer_usage {
  int64_t cpu_ns, voluntary, involuntary;
};

static inline struct peer_usage peer_used(void) {
  struct timespec cpu;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  struct peer_usage usage = {cpu.tv_sec * 1000000000LL + cpu.tv_nsec, used.ru_nvcsw, used.ru_nivcsw};
  return usage;
}

static inline void peer_done(long messages, const struct peer_usage *since) {
  struct peer_usage now = peer_used();
  printf("done %ld %lld %lld %lld\n", messages, (long long)(now.cpu_ns - since->cpu_ns),
         (long long)(now.voluntary - since->voluntary),
         (long long)(now.involuntary - since->involuntary));
  fflush(stdout);
}

struct peer_run {
  const struct peer *peer;
  const char *name;
  int readers;
  bool spin;
  // Endpoints by size, made when they are first needed and kept.
  size_t sizes[PEER_SIZES];
  void *writers[PEER_SIZES];
  void *taking[PEER_SIZES][PEER_READERS];
  // The run that is on.
  size_t bytes;
  double rate_hz;
  long count;
  char file[512];
  struct peer_usage began;
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

// The sending side of a run. The grid of intended times is fixed: a message that is late does not
// move the next one.
static inline void peer_publish(struct peer_run *run) {
  void *writer = run->writers[peer_slot(run)];
  int64_t period = (int64_t)(1e9 / run->rate_hz), intended = peer_now() + 2000000;
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

// The receiving side of a run: to the last message of each subscription, or until nothing has come
// for two seconds. Returns how many messages lie behind `began`.
static inline long peer_receive(struct peer_run *run) {
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
      // Looking at the clock at each turn would be a part of the latency.
      if ((!run->spin || ++polls % 4096 == 0) && peer_now() > limit) break;
      continue;
    }
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
  // What a run used is read before the file is written.
  struct peer_usage began = run->began;
  if (!peer_within) peer_done(counted, &began);
  peer_write(run, samples, count);
  if (!peer_within) printf("written\n"), fflush(stdout);
  free(samples);
  return counted;
}

// Publishes and takes in turn, all on this thread.
static inline void peer_alternate(struct peer_run *run) {
  int slot = peer_slot(run);
  struct sample *samples = (struct sample *)calloc((size_t)run->count, sizeof *samples);
  if (!samples) peer_die("no memory for %ld samples", run->count);
  memset(samples, 0, (size_t)run->count * sizeof *samples);
  int64_t period = (int64_t)(1e9 / run->rate_hz), intended = peer_now() + 2000000;
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
  peer_done((long)count, &run->began);
  peer_write(run, samples, count);
  printf("written\n");
  fflush(stdout);
  free(samples);
}

static inline void peer_pin(long cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET((size_t)cpu, &set);
  // Without a second CPU both share the one there is.
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
  if (pthread_create(&thread, NULL, peer_receive_beside, &beside) != 0) peer_die("no thread");
  peer_publish(run);
  pthread_join(thread, NULL);
  peer_done(run->count, &run->began);
  printf("written\n");
  fflush(stdout);
}

static inline int peer_main(int argc, char **argv, const struct peer *peer) {
  if (argc != 5) {
    fprintf(stderr, "usage: %s pub|sub|pair|thread NAME READERS sleep|spin\n", peer->name);
    return 2;
  }
  const char *role = argv[1];
  static struct peer_run run;
  run.peer = peer;
  run.name = argv[2];
  run.readers = atoi(argv[3]);
  run.spin = strcmp(argv[4], "spin") == 0;
  if (run.readers < 1 || run.readers > PEER_READERS) peer_die("1 to %d readers", PEER_READERS);
  bool sends = strcmp(role, "sub") != 0, takes = strcmp(role, "pub") != 0;
  peer_within = sends && takes;
  if (peer_within) run.readers = 1;
  if (strcmp(role, "pair") == 0) peer_pin(0);
  char line[768];
  while (fgets(line, sizeof line, stdin)) {
    if (sscanf(line, "run %zu %lf %ld %511s", &run.bytes, &run.rate_hz, &run.count, run.file) != 4 ||
        run.bytes < 64 || run.count < 1 || run.rate_hz <= 0)
      peer_die("cannot be understood: %s", line);
    if (takes) {
      peer_open_readers(&run, run.spin ? run.readers : 1);
      if (!sends) printf("open\n"), fflush(stdout);
    }
    if (sends) {
      int slot = peer_slot(&run);
      bool fresh = !run.writers[slot];
      peer_open_writer(&run);
      peer_await_readers(&run);
      // The readers' side of a fresh connection may take longer.
      if (fresh) usleep(100000);
    }
    if (!sends) peer_receive(&run);
    else if (!takes) {
      peer_publish(&run);
      peer_done(run.count, &run.began);
    } else if (strcmp(role, "pair") == 0) peer_pair(&run);
    else peer_alternate(&run);
  }
  return 0;
}

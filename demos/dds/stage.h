// What the programs here share: their words, work, and what they say of themselves at the end.
//
//     PROGRAM IN OUT COUNT PERIOD_MS BURN_MS
//
// IN and OUT are topics as DDS spells them, or -. Without IN the program's own thread writes COUNT
// messages; else it ends after as many. A program reads once it is read itself, so that a chain is
// complete when its source begins. The truth is one callback in the form of SYN's (../syn/README.md).
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RUNS_MAX 4096

struct stage {
  const char *name, *in, *out;
  int count, period_ms, burn_ms;
  int runs;
  int64_t cpu_ns[RUNS_MAX], starts_ns[RUNS_MAX], ends_ns[RUNS_MAX];
};

static inline int64_t stage_clock(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static inline void stage_die(const char *what) {
  fprintf(stderr, "%s\n", what);
  exit(1);
}

static inline void stage_sleep(int ms) {
  struct timespec time = {ms / 1000, ms % 1000 * 1000000L};
  nanosleep(&time, NULL);
}

static inline void stage_read(struct stage *stage, int argc, char **argv) {
  if (argc != 6) stage_die("usage: PROGRAM IN OUT COUNT PERIOD_MS BURN_MS");
  const char *slash = strrchr(argv[0], '/');
  stage->name = slash ? slash + 1 : argv[0];
  stage->in = argv[1][0] == '-' ? NULL : argv[1];
  stage->out = argv[2][0] == '-' ? NULL : argv[2];
  stage->count = atoi(argv[3]);
  stage->period_ms = atoi(argv[4]);
  stage->burn_ms = atoi(argv[5]);
  if (stage->count > RUNS_MAX) stage_die("too many messages");
}

// An execution begins, and computes for its time of the thread's CPU time.
static inline void stage_begin(struct stage *stage) {
  stage->starts_ns[stage->runs] = stage_clock(CLOCK_MONOTONIC);
  int64_t from = stage_clock(CLOCK_THREAD_CPUTIME_ID);
  stage->cpu_ns[stage->runs] = -from;
  while (stage_clock(CLOCK_THREAD_CPUTIME_ID) < from + stage->burn_ms * 1000000LL) continue;
}

// It ends.
static inline void stage_end(struct stage *stage) {
  stage->cpu_ns[stage->runs] += stage_clock(CLOCK_THREAD_CPUTIME_ID);
  stage->ends_ns[stage->runs++] = stage_clock(CLOCK_MONOTONIC);
}

// What ROS 2 calls a topic.
static inline const char *stage_ros(const char *topic) {
  return strncmp(topic, "rt/", 3) == 0 ? topic + 2 : topic;
}

static inline void stage_list(const char *name, const int64_t *values, int count) {
  printf(", \"%s\": [", name);
  for (int i = 0; i < count; i++) printf("%s%lld", i ? ", " : "", (long long)values[i]);
  printf("]");
}

static inline void stage_truth(const struct stage *stage) {
  const char *kind = stage->in ? "subscription" : "thread";
  printf("{\"id\": \"/%s:%s(%s)\", \"type\": \"%s\", \"outputs\": [", stage->name, kind,
         stage_ros(stage->in ? stage->in : stage->out), kind);
  if (stage->out) printf("\"%s\"", stage_ros(stage->out));
  printf("], \"count\": %d", stage->runs);
  stage_list("cpu_ns", stage->cpu_ns, stage->runs);
  stage_list("starts_ns", stage->starts_ns, stage->runs);
  stage_list("ends_ns", stage->ends_ns, stage->runs);
  printf("}\n");
}

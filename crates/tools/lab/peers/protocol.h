// The protocol between an experiment and the programs that it measures, for peers in C and C++.
// README.md describes it. rust/src/protocol.rs is the same for Rust.
//
// This file also has what every peer needs: clocks, sleeping, resource usage, and ending with an
// error.
#pragma once

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

// Prints one line on standard error and ends the program.
__attribute__((noreturn, format(printf, 1, 2), unused)) static void peer_die(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
  exit(1);
}

static inline int64_t peer_clock(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static inline int64_t peer_now(void) { return peer_clock(CLOCK_MONOTONIC); }

static inline struct timespec peer_timespec(int64_t ns) {
  struct timespec t = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
  return t;
}

static inline void peer_sleep_until(int64_t ns) {
  struct timespec t = peer_timespec(ns);
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {}
}

// CPU time and context switches of the whole process so far.
struct peer_usage {
  int64_t cpu_ns, voluntary, involuntary;
};

static inline struct peer_usage peer_used(void) {
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  struct peer_usage usage = {peer_clock(CLOCK_PROCESS_CPUTIME_ID), used.ru_nvcsw, used.ru_nivcsw};
  return usage;
}

// ---- settings: words NAME=VALUE, on the command line or after `run` ----

enum { PROTOCOL_WORDS = 24, PROTOCOL_LINE = 1024 };

struct protocol_words {
  int count;
  char *word[PROTOCOL_WORDS];
};

static inline struct protocol_words protocol_arguments(int argc, char **argv) {
  struct protocol_words words = {0, {NULL}};
  if (argc - 1 > PROTOCOL_WORDS) peer_die("more than %d settings", PROTOCOL_WORDS);
  for (int i = 1; i < argc; i++) words.word[words.count++] = argv[i];
  return words;
}

// Returns the value of a setting. Ends the program if it is missing.
static inline const char *protocol_text(const struct protocol_words *words, const char *name) {
  size_t length = strlen(name);
  for (int i = 0; i < words->count; i++)
    if (strncmp(words->word[i], name, length) == 0 && words->word[i][length] == '=')
      return words->word[i] + length + 1;
  peer_die("the setting %s= is missing", name);
}

// Returns the value of a setting as a number above zero. Ends the program if it is anything else.
static inline double protocol_number(const struct protocol_words *words, const char *name) {
  const char *text = protocol_text(words, name);
  char *end = NULL;
  double number = strtod(text, &end);
  if (*text == 0 || *end != 0 || !(number > 0)) peer_die("%s=%s is not a number above zero", name, text);
  return number;
}

// ---- commands: lines of standard input ----

enum protocol_kind { PROTOCOL_END, PROTOCOL_RUN, PROTOCOL_START, PROTOCOL_STOP };

struct protocol_command {
  enum protocol_kind kind;
  // PROTOCOL_START: the begin of the run, ns of CLOCK_MONOTONIC.
  int64_t start_ns;
  // PROTOCOL_RUN: the settings, which point into `line`.
  struct protocol_words words;
  char line[PROTOCOL_LINE];
};

// Reads the next command. It is PROTOCOL_END at the end of standard input.
static inline void protocol_read(struct protocol_command *command) {
  command->kind = PROTOCOL_END;
  command->words.count = 0;
  if (!fgets(command->line, sizeof command->line, stdin)) return;
  char *rest = NULL, *word = strtok_r(command->line, " \n", &rest);
  if (!word) peer_die("an empty command");
  if (strcmp(word, "run") == 0) {
    command->kind = PROTOCOL_RUN;
    while ((word = strtok_r(NULL, " \n", &rest)) != NULL) {
      if (command->words.count == PROTOCOL_WORDS) peer_die("more than %d settings", PROTOCOL_WORDS);
      command->words.word[command->words.count++] = word;
    }
  } else if (strcmp(word, "start") == 0 && (word = strtok_r(NULL, " \n", &rest)) != NULL) {
    command->kind = PROTOCOL_START;
    command->start_ns = strtoll(word, NULL, 10);
  } else if (strcmp(word, "stop") == 0) {
    command->kind = PROTOCOL_STOP;
  } else {
    peer_die("unknown command '%s'", command->line);
  }
}

// ---- answers: lines of standard output ----

// Prints a line. It uses no buffer, which a middleware could flush or hold back.
__attribute__((format(printf, 1, 2))) static inline void protocol_say(const char *format, ...) {
  char line[256];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(line, sizeof line - 1, format, arguments);
  va_end(arguments);
  if (length < 0 || length >= (int)sizeof line - 1) peer_die("an answer is too long");
  line[length] = '\n';
  if (write(STDOUT_FILENO, line, (size_t)length + 1) != length + 1) peer_die("standard output: %s", strerror(errno));
}

// Reports that this side is connected, or that others can send to it.
static inline void protocol_ready(void) { protocol_say("ready"); }

// Reports that this side has sent or received all its messages, and what the process has used for
// them since `began`.
static inline void protocol_done(long messages, const struct peer_usage *began) {
  struct peer_usage now = peer_used();
  protocol_say("done %ld %lld %lld %lld", messages, (long long)(now.cpu_ns - began->cpu_ns),
               (long long)(now.voluntary - began->voluntary),
               (long long)(now.involuntary - began->involuntary));
}

// Reports that the samples are in their files.
static inline void protocol_written(void) { protocol_say("written"); }

// Waits for a command of this kind, in peers that read commands only between the phases of a run.
// The end of standard input ends the program.
static inline int64_t protocol_await(enum protocol_kind kind) {
  struct protocol_command command;
  protocol_read(&command);
  if (command.kind == PROTOCOL_END) _exit(0);
  if (command.kind != kind) peer_die("the experiment sent a command out of order");
  return command.start_ns;
}

// Reports `ready` and waits for the begin of the run.
static inline int64_t protocol_await_start(void) {
  protocol_ready();
  return protocol_await(PROTOCOL_START);
}

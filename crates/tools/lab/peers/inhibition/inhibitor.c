// The inhibitor: inverts a large image repeatedly until it has used `ms` of CPU time, under
// SCHED_RR and on one CPU. cpu=N priority=P ms=N
//
// It prints `begun T` and `over T` (ns of CLOCK_MONOTONIC). The kernel kills it (RLIMIT_RTTIME) if
// it runs for twice as long, even if no other process gets a CPU.
#define _GNU_SOURCE
#include "../protocol.h"

#include <inttypes.h>
#include <sched.h>

enum { WIDTH = 1920, HEIGHT = 1080, CHANNELS = 3 };

static uint8_t image[WIDTH * HEIGHT * CHANNELS];

static void invert(void) {
  for (size_t i = 0; i < sizeof image; i++) image[i] = (uint8_t)~image[i];
  // The compiler must not join the next inversion with this one.
  __asm__ volatile("" ::: "memory");
}

int main(int argc, char **argv) {
  struct protocol_words words = protocol_arguments(argc, argv);
  int64_t cpu_ns = (int64_t)(protocol_number(&words, "ms") * 1e6);
  struct rlimit limit = {.rlim_cur = (rlim_t)(cpu_ns / 500), .rlim_max = (rlim_t)(cpu_ns / 500)};
  if (setrlimit(RLIMIT_RTTIME, &limit) != 0) peer_die("RLIMIT_RTTIME: %s", strerror(errno));
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET((size_t)atoi(protocol_text(&words, "cpu")), &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) peer_die("the CPU: %s", strerror(errno));
  invert();
  struct sched_param parameter = {.sched_priority = (int)protocol_number(&words, "priority")};
  if (sched_setscheduler(0, SCHED_RR, &parameter) != 0) peer_die("SCHED_RR: %s", strerror(errno));
  protocol_say("begun %" PRId64, peer_now());
  int64_t until = peer_clock(CLOCK_PROCESS_CPUTIME_ID) + cpu_ns;
  while (peer_clock(CLOCK_PROCESS_CPUTIME_ID) < until) invert();
  protocol_say("over %" PRId64, peer_now());
  return 0;
}

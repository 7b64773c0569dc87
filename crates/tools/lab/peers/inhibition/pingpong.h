// Ping-pong as in an executor with one thread: it waits until a timer is due or a message has
// arrived, takes the message and answers. One process has the sender, the answerer, or both.
//
// role=one (both, one node), two (both, two nodes), ping, pong; loops=N period_us=N file=SAMPLES;
// cpu=N other=N pin=all|main|apart: the middleware's threads run on cpu, anywhere, or on other;
// main=P children=P: SCHED_RR priorities, 0 for time-sharing threads.
//
// It prints `ready` when the first answer has arrived, and `times BEGAN READY ENDED PACKETS` at its
// end (ns of CLOCK_MONOTONIC; PACKETS counts packets on the loopback interface between READY and
// ENDED).
#pragma once

#include "../protocol.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>

// The functions of a middleware that the loop needs.
struct middleware {
  const char *name;
  // Creates a participant or node. `number` distinguishes the nodes of a process.
  void *(*node)(int number);
  void *(*writer)(void *node, const char *topic);
  void *(*reader)(void *node, const char *topic);
  void (*send)(void *writer, int64_t number);
  bool (*take)(void *reader, int64_t *number);
  // Sleeps until a reader has a message, or until `until_ns`.
  void (*wait)(int64_t until_ns);
  void (*end)(void);
};

struct loop {
  int64_t due_ns, woke_ns, sent_ns, received_ns;
};

enum { PINGPONG_MEET = -1, PINGPONG_MEET_LIMIT_S = 60, PINGPONG_LAST_ANSWER_MS = 100 };

static const struct middleware *used;
static void *ping_writer, *pong_reader, *ping_reader, *pong_writer;
static struct loop *loops;
static long loop_count, loops_done;
static bool met;
static volatile sig_atomic_t ended;

static void pingpong_stop(int signal_number) {
  (void)signal_number;
  ended = 1;
}

static void pingpong_policy(int priority, bool children_too) {
  struct sched_param parameter = {.sched_priority = priority};
  int policy = priority == 0 ? SCHED_OTHER : SCHED_RR;
  if (priority != 0 && !children_too) policy |= SCHED_RESET_ON_FORK;
  if (sched_setscheduler(0, policy, &parameter) != 0) peer_die("SCHED_RR %d: %s", priority, strerror(errno));
}

static void pingpong_pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) peer_die("CPU %d: %s", cpu, strerror(errno));
}

// Returns how many packets the loopback interface of this network namespace has received.
static int64_t pingpong_packets(void) {
  FILE *file = fopen("/proc/net/dev", "r");
  char line[512];
  int64_t bytes = 0, packets = -1;
  while (file && fgets(line, sizeof line, file))
    if (sscanf(line, " lo: %" SCNd64 " %" SCNd64, &bytes, &packets) == 2) break;
  if (file) fclose(file);
  return packets;
}

static void pingpong_endpoints(const char *role) {
  bool one = strcmp(role, "one") == 0, two = strcmp(role, "two") == 0;
  bool ping = one || two || strcmp(role, "ping") == 0, pong = one || two || strcmp(role, "pong") == 0;
  if (!ping && !pong) peer_die("no role '%s'", role);
  void *first = used->node(0);
  void *second = two ? used->node(1) : first;
  if (pong) {
    ping_reader = used->reader(second, "ping");
    pong_writer = used->writer(second, "pong");
  }
  if (ping) {
    pong_reader = used->reader(first, "pong");
    ping_writer = used->writer(first, "ping");
  }
}

// Does the work of an executor between two waits.
static void pingpong_callbacks(void) {
  int64_t number;
  while (ping_reader && used->take(ping_reader, &number)) used->send(pong_writer, number);
  while (pong_reader && used->take(pong_reader, &number)) {
    if (number == PINGPONG_MEET) met = true;
    else if (number >= 0 && number < loops_done && loops[number].received_ns == 0)
      loops[number].received_ns = peer_now();
  }
}

static void pingpong_until(int64_t until_ns) {
  while (!ended && peer_now() < until_ns) {
    pingpong_callbacks();
    used->wait(until_ns);
  }
}

// Sends until the other side answers.
static void pingpong_meet(int64_t period_ns) {
  int64_t limit = peer_now() + PINGPONG_MEET_LIMIT_S * 1000000000LL;
  while (!met && !ended) {
    if (peer_now() > limit) peer_die("%s: no answer within %d s", used->name, PINGPONG_MEET_LIMIT_S);
    used->send(ping_writer, PINGPONG_MEET);
    pingpong_until(peer_now() + period_ns);
  }
}

// A missed wake-up is skipped, as with a ROS 2 timer. The number of loops is fixed.
static void pingpong_loops(int64_t period_ns) {
  int64_t due = peer_now() + period_ns;
  while (loops_done < loop_count && !ended) {
    pingpong_until(due);
    struct loop *loop = &loops[loops_done++];
    loop->due_ns = due;
    loop->woke_ns = peer_now();
    used->send(ping_writer, loops_done - 1);
    loop->sent_ns = peer_now();
    do due += period_ns;
    while (due <= loop->sent_ns);
  }
  int64_t limit = peer_now() + PINGPONG_LAST_ANSWER_MS * 1000000LL;
  while (!ended && peer_now() < limit && loops[loop_count - 1].received_ns == 0)
    pingpong_until(peer_now() + period_ns);
}

static void pingpong_write(const char *path) {
  FILE *file = fopen(path, "w");
  if (!file) peer_die("writing %s: %s", path, strerror(errno));
  for (long i = 0; i < loops_done; i++)
    fprintf(file, "%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "\n", loops[i].due_ns, loops[i].woke_ns,
            loops[i].sent_ns, loops[i].received_ns);
  if (fclose(file) != 0) peer_die("writing %s: %s", path, strerror(errno));
}

static void pingpong_measure(const struct protocol_words *words, int64_t began_ns) {
  int64_t period_ns = (int64_t)(protocol_number(words, "period_us") * 1000);
  loop_count = (long)protocol_number(words, "loops");
  loops = (struct loop *)calloc((size_t)loop_count, sizeof *loops);
  if (!loops) peer_die("no memory");
  pingpong_meet(period_ns);
  int64_t ready_ns = peer_now(), packets = pingpong_packets();
  protocol_ready();
  pingpong_loops(period_ns);
  int64_t ended_ns = peer_now();
  packets = pingpong_packets() - packets;
  pingpong_write(protocol_text(words, "file"));
  protocol_say("times %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64, began_ns, ready_ns, ended_ns, packets);
}

static int pingpong_main(int argc, char **argv, const struct middleware *made) {
  int64_t began_ns = peer_now();
  struct protocol_words words = protocol_arguments(argc, argv);
  const char *role = protocol_text(&words, "role");
  int main_priority = atoi(protocol_text(&words, "main")), children = atoi(protocol_text(&words, "children"));
  int cpu = atoi(protocol_text(&words, "cpu"));
  const char *pin = protocol_text(&words, "pin");
  bool all = strcmp(pin, "all") == 0, apart = strcmp(pin, "apart") == 0;
  used = made;
  signal(SIGTERM, pingpong_stop);
  // The middleware's threads inherit the policy that this thread has when it starts them.
  pingpong_policy(children == 0 ? main_priority : children, children != 0);
  if (all || apart) pingpong_pin(all ? cpu : atoi(protocol_text(&words, "other")));
  pingpong_endpoints(role);
  pingpong_policy(main_priority, children != 0);
  if (!all) pingpong_pin(cpu);
  if (ping_writer) pingpong_measure(&words, began_ns);
  else
    while (!ended) pingpong_until(peer_now() + 100000000);
  used->end();
  return 0;
}

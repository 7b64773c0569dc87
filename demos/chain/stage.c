// One callback as a ROS 2 node on rcl: a timer, or a subscription of one or several topics. It burns
// CPU time, publishes, and keeps a log of when its chain began and when it published.
//
// A stage with several inputs runs when it has the same item of all of them. How long item n takes
// depends on the seed, the name and n only, so that runs can be compared.
#include <rcl/error_handling.h>
#include <rcl/rcl.h>
#include <rosidl_runtime_c/string_functions.h>
#include <signal.h>
#include <std_msgs/msg/string.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_INPUTS = 8, MAX_OUTPUTS = 4, TEXT = 64 };

struct Item {
  long long number, start_ns;
};

struct Stage {
  const char *name, *log_path;
  double period_ms, min_ms, max_ms, over_ms, step_ms;
  long long over_every, step_from, step_until;
  uint64_t seed;
  int inputs, outputs, flush;
  size_t payload;
  const char *input[MAX_INPUTS], *output[MAX_OUTPUTS];
  rcl_subscription_t subscription[MAX_INPUTS];
  rcl_publisher_t publisher[MAX_OUTPUTS];
  struct Item latest[MAX_INPUTS];
  long long number;
  FILE *log;
  std_msgs__msg__String message;
};

static volatile sig_atomic_t over = 0;

static void stop(int signal_number) {
  (void)signal_number;
  over = 1;
}

static void die(const char *what) {
  fprintf(stderr, "stage: %s\n", what);
  exit(1);
}

static void check(rcl_ret_t ret, const char *what) {
  if (ret == RCL_RET_OK) return;
  fprintf(stderr, "stage: %s failed: %s\n", what, rcl_get_error_string().str);
  exit(1);
}

static long long now_ns(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

// A number in [0, 1) from the stage and the item (splitmix64).
static double draw(const struct Stage *stage, long long number) {
  uint64_t x = stage->seed;
  for (const char *c = stage->name; *c; c++) x = x * 1099511628211u + (unsigned char)*c;
  x += (uint64_t)(number + 1) * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return (double)((x ^ (x >> 31)) >> 11) / 9007199254740992.0;
}

static void execute(struct Stage *stage, struct Item item) {
  long long until = now_ns(CLOCK_THREAD_CPUTIME_ID);
  double ms = stage->min_ms + (stage->max_ms - stage->min_ms) * draw(stage, item.number);
  if (stage->over_every && item.number % stage->over_every == stage->over_every - 1)
    ms = stage->over_ms;
  if (item.number >= stage->step_from && item.number < stage->step_until) ms += stage->step_ms;
  until += (long long)(ms * 1e6);
  while (now_ns(CLOCK_THREAD_CPUTIME_ID) < until) {
  }
  char head[TEXT];
  int length = snprintf(head, sizeof head, "%lld %lld ", item.number, item.start_ns);
  memcpy(stage->message.data.data, head, (size_t)length);
  long long at = now_ns(CLOCK_MONOTONIC);
  for (int i = 0; i < stage->outputs; i++)
    check(rcl_publish(&stage->publisher[i], &stage->message, NULL), "publishing");
  if (stage->log)
    fprintf(stage->log, "%lld,%lld,%lld\n", item.number, item.start_ns, at);
}

static void timer_called(rcl_timer_t *timer, int64_t since) {
  (void)timer;
  (void)since;
}

static void take(struct Stage *stage, int input) {
  std_msgs__msg__String message;
  if (!std_msgs__msg__String__init(&message)) die("no memory");
  rcl_ret_t ret = rcl_take(&stage->subscription[input], &message, NULL, NULL);
  if (ret == RCL_RET_OK) {
    struct Item item;
    if (sscanf(message.data.data, "%lld %lld", &item.number, &item.start_ns) == 2) {
      stage->latest[input] = item;
      bool all = true;
      for (int i = 0; i < stage->inputs; i++) {
        all = all && stage->latest[i].number == item.number;
        // Several paths from one source have the same start.
        if (stage->latest[i].start_ns < item.start_ns) item.start_ns = stage->latest[i].start_ns;
      }
      if (all) execute(stage, item);
    }
  } else if (ret != RCL_RET_SUBSCRIPTION_TAKE_FAILED) {
    check(ret, "taking");
  }
  std_msgs__msg__String__fini(&message);
}

// Waits until a source's publishers are connected, for 3 s at most: nobody may want its output. A
// publisher knows of a subscription before that knows of it, and what it sends meanwhile is taken 50 ms
// and more later. So it waits again as long as it took to be known on one side, and a second more.
static void connect_outputs(struct Stage *stage) {
  struct timespec moment = {.tv_nsec = 10000000};
  long long begin = now_ns(CLOCK_MONOTONIC);
  for (int i = 0; i < stage->outputs; i++)
    for (size_t takers = 0; !over && !takers && now_ns(CLOCK_MONOTONIC) < begin + 3000000000; nanosleep(&moment, NULL))
      check(rcl_publisher_get_subscription_count(&stage->publisher[i], &takers), "counting subscriptions");
  long long end = now_ns(CLOCK_MONOTONIC);
  for (end += end - begin + 1000000000; stage->outputs && !over && now_ns(CLOCK_MONOTONIC) < end;)
    nanosleep(&moment, NULL);
}

static void options(struct Stage *stage, int argc, char **argv) {
  for (int i = 1; i < argc && strcmp(argv[i], "--ros-args"); i += 2) {
    const char *word = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
    if (!value) die("an option needs a value");
    if (!strcmp(word, "--name")) stage->name = value;
    else if (!strcmp(word, "--period-ms")) stage->period_ms = atof(value);
    else if (!strcmp(word, "--min-ms")) stage->min_ms = atof(value);
    else if (!strcmp(word, "--max-ms")) stage->max_ms = atof(value);
    else if (!strcmp(word, "--over-ms")) stage->over_ms = atof(value);
    else if (!strcmp(word, "--over-every")) stage->over_every = atoll(value);
    else if (!strcmp(word, "--step-ms")) stage->step_ms = atof(value);
    else if (!strcmp(word, "--step-from")) stage->step_from = atoll(value);
    else if (!strcmp(word, "--step-until")) stage->step_until = atoll(value);
    else if (!strcmp(word, "--seed")) stage->seed = strtoull(value, NULL, 10);
    else if (!strcmp(word, "--payload")) stage->payload = strtoull(value, NULL, 10);
    else if (!strcmp(word, "--log")) stage->log_path = value;
    else if (!strcmp(word, "--flush")) stage->flush = atoi(value);
    else if (!strcmp(word, "--in") && stage->inputs < MAX_INPUTS) stage->input[stage->inputs++] = value;
    else if (!strcmp(word, "--out") && stage->outputs < MAX_OUTPUTS) stage->output[stage->outputs++] = value;
    else die("unknown option, or too many of a kind: see run.py");
  }
  if (!stage->name || (stage->period_ms > 0) == (stage->inputs > 0))
    die("needs --name, and --period-ms or --in");
}

int main(int argc, char **argv) {
  struct Stage stage = {.seed = 1};
  options(&stage, argc, argv);
  struct sigaction action = {.sa_handler = stop};
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  if (stage.log_path && !(stage.log = fopen(stage.log_path, "w"))) die("cannot write the log");
  if (stage.log && stage.flush) setvbuf(stage.log, NULL, _IOLBF, BUFSIZ);

  rcl_allocator_t allocator = rcl_get_default_allocator();
  rcl_init_options_t init = rcl_get_zero_initialized_init_options();
  check(rcl_init_options_init(&init, allocator), "initialising");
  rcl_context_t context = rcl_get_zero_initialized_context();
  check(rcl_init(argc, (const char *const *)argv, &init, &context), "initialising");
  rcl_node_t node = rcl_get_zero_initialized_node();
  rcl_node_options_t node_options = rcl_node_get_default_options();
  check(rcl_node_init(&node, stage.name, "", &context, &node_options), "creating the node");
  const rosidl_message_type_support_t *type = ROSIDL_GET_MSG_TYPE_SUPPORT(std_msgs, msg, String);
  for (int i = 0; i < stage.outputs; i++) {
    stage.publisher[i] = rcl_get_zero_initialized_publisher();
    rcl_publisher_options_t with = rcl_publisher_get_default_options();
    check(rcl_publisher_init(&stage.publisher[i], &node, type, stage.output[i], &with), "creating a publisher");
  }
  for (int i = 0; i < stage.inputs; i++) {
    stage.subscription[i] = rcl_get_zero_initialized_subscription();
    stage.latest[i].number = -1 - i;
    rcl_subscription_options_t with = rcl_subscription_get_default_options();
    check(rcl_subscription_init(&stage.subscription[i], &node, type, stage.input[i], &with), "creating a subscription");
  }
  size_t bytes = stage.payload < TEXT ? TEXT : stage.payload;
  char *text = malloc(bytes + 1);
  if (!text || !std_msgs__msg__String__init(&stage.message)) die("no memory");
  memset(text, '.', bytes);
  text[bytes] = 0;
  if (!rosidl_runtime_c__String__assign(&stage.message.data, text)) die("no memory");
  free(text);

  rcl_clock_t clock;
  check(rcl_clock_init(RCL_STEADY_TIME, &clock, &allocator), "creating a clock");
  rcl_timer_t timer = rcl_get_zero_initialized_timer();
  if (stage.period_ms > 0) connect_outputs(&stage);
  if (stage.period_ms > 0)
    check(rcl_timer_init2(&timer, &clock, &context, (int64_t)(stage.period_ms * 1e6), timer_called, allocator, true), "creating the timer");
  rcl_wait_set_t set = rcl_get_zero_initialized_wait_set();
  size_t timers = stage.period_ms > 0 ? 1 : 0;
  check(rcl_wait_set_init(&set, (size_t)stage.inputs, 0, timers, 0, 0, 0, &context, allocator), "creating a wait set");
  while (!over) {
    check(rcl_wait_set_clear(&set), "clearing the wait set");
    for (int i = 0; i < stage.inputs; i++)
      check(rcl_wait_set_add_subscription(&set, &stage.subscription[i], NULL), "waiting");
    if (timers) check(rcl_wait_set_add_timer(&set, &timer, NULL), "waiting");
    rcl_ret_t ret = rcl_wait(&set, 200000000);
    if (ret == RCL_RET_TIMEOUT) continue;
    if (over) break;
    check(ret, "waiting");
    if (timers && set.timers[0]) {
      check(rcl_timer_call(&timer), "calling the timer");
      execute(&stage, (struct Item){stage.number++, now_ns(CLOCK_MONOTONIC)});
    }
    for (int i = 0; i < stage.inputs; i++)
      if (set.subscriptions[i]) take(&stage, i);
  }
  if (stage.log && fclose(stage.log)) die("the log could not be written whole");
  // The processes' end frees the rest.
  return rcl_shutdown(&context) == RCL_RET_OK ? 0 : 1;
}

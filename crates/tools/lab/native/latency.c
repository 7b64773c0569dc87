// A publisher or a subscriber on rcl, which makes rclcpp's trace calls in rclcpp's order and keeps
// the time of every message.
//
//   latency pub RATE_HZ BYTES   publishes at RATE_HZ, on an absolute time grid
//   latency sub FILE            on SIGTERM writes FILE: sequence,intended_ns,sent_ns,received_ns
//
// Times are CLOCK_MONOTONIC. Both print "ready" when they have found each other.
#include <rcl/error_handling.h>
#include <rcl/rcl.h>
#include <rcl/timer.h>
#include <rosidl_runtime_c/primitives_sequence_functions.h>
#include <signal.h>
#include <std_msgs/msg/u_int8_multi_array.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <tracetools/tracetools.h>
#include <unistd.h>

static volatile sig_atomic_t ended;
static void on_end(int signal) { (void)signal; ended = 1; }

static void check(rcl_ret_t ret, const char *what) {
  if (ret == RCL_RET_OK) return;
  fprintf(stderr, "latency: %s: %s\n", what, rcl_get_error_string().str);
  exit(1);
}

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void sleep_until(int64_t ns) {
  struct timespec t = {ns / 1000000000, ns % 1000000000};
  while (!ended && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) != 0) {}
}

// The beginning of every message.
struct stamp { int64_t sequence, intended_ns, sent_ns; };

static rcl_context_t context;
static rcl_node_t node;

static void start(const char *name) {
  rcl_init_options_t options = rcl_get_zero_initialized_init_options();
  check(rcl_init_options_init(&options, rcl_get_default_allocator()), "options");
  context = rcl_get_zero_initialized_context();
  check(rcl_init(0, NULL, &options, &context), "starting ROS 2");
  check(rcl_init_options_fini(&options), "options");
  node = rcl_get_zero_initialized_node();
  rcl_node_options_t node_options = rcl_node_get_default_options();
  check(rcl_node_init(&node, name, "", &context, &node_options), "creating the node");
}

static void announce(void) {
  printf("ready\n");
  fflush(stdout);
}

static void publish(double rate_hz, size_t bytes) {
  start("latency_pub");
  const rosidl_message_type_support_t *type = ROSIDL_GET_MSG_TYPE_SUPPORT(std_msgs, msg, UInt8MultiArray);
  rcl_publisher_t publisher = rcl_get_zero_initialized_publisher();
  rcl_publisher_options_t options = rcl_publisher_get_default_options();
  check(rcl_publisher_init(&publisher, &node, type, "/latency", &options), "creating the publisher");

  int64_t period_ns = (int64_t)(1e9 / rate_hz);
  rcl_clock_t clock;
  rcl_allocator_t allocator = rcl_get_default_allocator();
  check(rcl_clock_init(RCL_STEADY_TIME, &clock, &allocator), "creating the clock");
  rcl_timer_t timer = rcl_get_zero_initialized_timer();
  check(rcl_timer_init2(&timer, &clock, &context, period_ns, NULL, allocator, true), "creating the timer");
  // The calls of rclcpp at start-up, with addresses that stand for its objects.
  static char callback;
  TRACETOOLS_TRACEPOINT(rclcpp_timer_callback_added, &timer, &callback);
  TRACETOOLS_TRACEPOINT(rclcpp_timer_link_node, &timer, &node);

  std_msgs__msg__UInt8MultiArray message;
  std_msgs__msg__UInt8MultiArray__init(&message);
  if (bytes < sizeof(struct stamp)) bytes = sizeof(struct stamp);
  rosidl_runtime_c__uint8__Sequence__init(&message.data, bytes);

  size_t subscribers = 0;
  while (!ended && subscribers == 0) {
    check(rcl_publisher_get_subscription_count(&publisher, &subscribers), "counting subscribers");
    usleep(10000);
  }
  usleep(300000);
  announce();
  int64_t intended = now_ns() + 10000000;
  for (int64_t sequence = 0; !ended; sequence++, intended += period_ns) {
    TRACETOOLS_TRACEPOINT(rclcpp_executor_get_next_ready);
    TRACETOOLS_TRACEPOINT(rclcpp_executor_wait_for_work, -1);
    // The grid is fixed: a late publication does not move the next one.
    sleep_until(intended);
    TRACETOOLS_TRACEPOINT(rclcpp_executor_get_next_ready);
    rcl_timer_call_info_t info;
    rcl_ret_t ret = rcl_timer_call_with_info(&timer, &info);
    if (ret != RCL_RET_OK) check(ret, "calling the timer");
    TRACETOOLS_TRACEPOINT(rclcpp_executor_execute, &timer);
    TRACETOOLS_TRACEPOINT(callback_start, &callback, false);
    struct stamp stamp = {sequence, intended, now_ns()};
    memcpy(message.data.data, &stamp, sizeof stamp);
    TRACETOOLS_TRACEPOINT(rclcpp_publish, NULL, &message);
    check(rcl_publish(&publisher, &message, NULL), "publishing");
    TRACETOOLS_TRACEPOINT(callback_end, &callback);
  }
}

struct sample { int64_t sequence, intended_ns, sent_ns, received_ns; };

static void subscribe(const char *file) {
  start("latency_sub");
  const rosidl_message_type_support_t *type = ROSIDL_GET_MSG_TYPE_SUPPORT(std_msgs, msg, UInt8MultiArray);
  rcl_subscription_t subscription = rcl_get_zero_initialized_subscription();
  rcl_subscription_options_t options = rcl_subscription_get_default_options();
  check(rcl_subscription_init(&subscription, &node, type, "/latency", &options), "creating the subscription");
  static char callback, object;
  TRACETOOLS_TRACEPOINT(rclcpp_subscription_init, &subscription, &object);
  TRACETOOLS_TRACEPOINT(rclcpp_subscription_callback_added, &object, &callback);
  rcl_wait_set_t wait_set = rcl_get_zero_initialized_wait_set();
  check(rcl_wait_set_init(&wait_set, 1, 0, 0, 0, 0, 0, &context, rcl_get_default_allocator()), "wait set");
  std_msgs__msg__UInt8MultiArray message;
  std_msgs__msg__UInt8MultiArray__init(&message);

  size_t room = 1 << 20, count = 0, publishers = 0;
  struct sample *samples = malloc(room * sizeof *samples);
  memset(samples, 0, room * sizeof *samples);  // no page faults while measuring
  while (!ended && publishers == 0) {
    check(rcl_subscription_get_publisher_count(&subscription, &publishers), "counting publishers");
    usleep(10000);
  }
  announce();
  while (!ended) {
    TRACETOOLS_TRACEPOINT(rclcpp_executor_get_next_ready);
    TRACETOOLS_TRACEPOINT(rclcpp_executor_wait_for_work, -1);
    check(rcl_wait_set_clear(&wait_set), "wait set");
    check(rcl_wait_set_add_subscription(&wait_set, &subscription, NULL), "wait set");
    rcl_ret_t ret = rcl_wait(&wait_set, RCL_MS_TO_NS(100));
    if (ret == RCL_RET_TIMEOUT) continue;
    check(ret, "waiting");
    TRACETOOLS_TRACEPOINT(rclcpp_executor_get_next_ready);
    TRACETOOLS_TRACEPOINT(rclcpp_executor_execute, &subscription);
    rmw_message_info_t info;
    ret = rcl_take(&subscription, &message, &info, NULL);
    if (ret == RCL_RET_SUBSCRIPTION_TAKE_FAILED) {
      rcl_reset_error();
      continue;
    }
    check(ret, "taking");
    TRACETOOLS_TRACEPOINT(rclcpp_take, &message);
    TRACETOOLS_TRACEPOINT(callback_start, &callback, false);
    int64_t received = now_ns();
    struct stamp stamp;
    memcpy(&stamp, message.data.data, sizeof stamp);
    if (count < room)
      samples[count++] = (struct sample){stamp.sequence, stamp.intended_ns, stamp.sent_ns, received};
    TRACETOOLS_TRACEPOINT(callback_end, &callback);
  }
  FILE *out = fopen(file, "w");
  if (!out) {
    perror(file);
    exit(1);
  }
  for (size_t i = 0; i < count; i++)
    fprintf(out, "%lld,%lld,%lld,%lld\n", (long long)samples[i].sequence, (long long)samples[i].intended_ns,
            (long long)samples[i].sent_ns, (long long)samples[i].received_ns);
  if (fclose(out) != 0) {
    perror(file);
    exit(1);
  }
}

int main(int argc, char **argv) {
  struct sigaction action = {.sa_handler = on_end};
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGINT, &action, NULL);
  if (argc == 4 && strcmp(argv[1], "pub") == 0) publish(atof(argv[2]), strtoul(argv[3], NULL, 10));
  else if (argc == 3 && strcmp(argv[1], "sub") == 0) subscribe(argv[2]);
  else {
    fprintf(stderr, "usage: latency pub RATE_HZ BYTES | sub FILE\n");
    return 2;
  }
  // Nothing is destroyed: the process ends with its ROS 2 entities.
  _exit(0);
}

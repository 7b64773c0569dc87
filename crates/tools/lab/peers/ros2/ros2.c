// ROS 2 without rclcpp as a peer: a publisher and a subscription of rcl, as in compiled nodes.
#define _GNU_SOURCE
#include "../transport.h"

#include <rcl/error_handling.h>
#include <rcl/rcl.h>
#include <rosidl_runtime_c/primitives_sequence_functions.h>
#include <std_msgs/msg/u_int8_multi_array.h>

static void check(rcl_ret_t ret, const char *what) {
  if (ret != RCL_RET_OK) peer_die("ros2: %s: %s", what, rcl_get_error_string().str);
}

static rcl_context_t context;

static rcl_node_t one;

static rcl_node_t *node(void) {
  if (rcl_context_is_valid(&context)) return &one;
  rcl_init_options_t options = rcl_get_zero_initialized_init_options();
  check(rcl_init_options_init(&options, rcl_get_default_allocator()), "options");
  context = rcl_get_zero_initialized_context();
  check(rcl_init(0, NULL, &options, &context), "starting ROS 2");
  check(rcl_init_options_fini(&options), "options");
  one = rcl_get_zero_initialized_node();
  char name[32];
  snprintf(name, sizeof name, "peer_%d", (int)getpid());
  rcl_node_options_t node_options = rcl_node_get_default_options();
  check(rcl_node_init(&one, name, "", &context, &node_options), "creating the node");
  return &one;
}

struct side {
  struct side *next;
  rcl_publisher_t publisher;
  rcl_subscription_t subscription;
  rcl_wait_set_t wait_set;
  std_msgs__msg__UInt8MultiArray message;
};

// All endpoints, to be destroyed at the end: an endpoint that is not destroyed leaves files in
// shared memory.
static struct side *sides;

static struct side *side(size_t bytes) {
  struct side *made = calloc(1, sizeof *made);
  if (!made || !std_msgs__msg__UInt8MultiArray__init(&made->message) ||
      !rosidl_runtime_c__uint8__Sequence__init(&made->message.data, bytes))
    peer_die("ros2: no memory");
  made->publisher = rcl_get_zero_initialized_publisher();
  made->subscription = rcl_get_zero_initialized_subscription();
  made->wait_set = rcl_get_zero_initialized_wait_set();
  made->next = sides;
  sides = made;
  return made;
}

static const rosidl_message_type_support_t *type(void) {
  return ROSIDL_GET_MSG_TYPE_SUPPORT(std_msgs, msg, UInt8MultiArray);
}

static void *writer(const char *topic, size_t bytes) {
  struct side *made = side(bytes);
  rcl_publisher_options_t options = rcl_publisher_get_default_options();
  check(rcl_publisher_init(&made->publisher, node(), type(), topic, &options), "creating the publisher");
  return made;
}

static void *reader(const char *topic, size_t bytes) {
  struct side *made = side(bytes);
  rcl_subscription_options_t options = rcl_subscription_get_default_options();
  check(rcl_subscription_init(&made->subscription, node(), type(), topic, &options), "creating the subscription");
  check(rcl_wait_set_init(&made->wait_set, 1, 0, 0, 0, 0, 0, &context, rcl_get_default_allocator()), "wait set");
  return made;
}

static bool matched(void *opaque, int readers) {
  size_t count = 0;
  check(rcl_publisher_get_subscription_count(&((struct side *)opaque)->publisher, &count), "counting subscriptions");
  return count >= (size_t)readers;
}

static void send_stamp(void *opaque, const struct stamp *stamp, size_t bytes) {
  struct side *side = opaque;
  peer_fill(side->message.data.data, bytes, stamp);
  check(rcl_publish(&side->publisher, &side->message, NULL), "publishing");
}

// Waits before each take, as an executor does.
static bool receive(void *opaque, int64_t deadline_ns, size_t bytes, struct sample *sample) {
  struct side *side = opaque;
  for (;;) {
    int64_t left = deadline_ns == 0 ? 0 : deadline_ns - peer_now();
    if (left < 0) return false;
    check(rcl_wait_set_clear(&side->wait_set), "wait set");
    check(rcl_wait_set_add_subscription(&side->wait_set, &side->subscription, NULL), "wait set");
    rcl_ret_t ret = rcl_wait(&side->wait_set, left);
    if (ret == RCL_RET_TIMEOUT) return false;
    check(ret, "waiting");
    rmw_message_info_t info;
    ret = rcl_take(&side->subscription, &side->message, &info, NULL);
    if (ret == RCL_RET_SUBSCRIPTION_TAKE_FAILED) {
      rcl_reset_error();
      continue;
    }
    check(ret, "taking");
    if (side->message.data.size != bytes) peer_die("ros2: a message of the wrong size arrived");
    peer_arrived(side->message.data.data, bytes, sample);
    return true;
  }
}

static void take_apart(void) {
  for (struct side *side = sides; side; side = side->next) {
    if (rcl_publisher_is_valid(&side->publisher)) check(rcl_publisher_fini(&side->publisher, node()), "ending");
    rcl_reset_error();
    if (rcl_subscription_is_valid(&side->subscription))
      check(rcl_subscription_fini(&side->subscription, node()), "ending");
    rcl_reset_error();
    check(rcl_wait_set_fini(&side->wait_set), "ending");
  }
  check(rcl_node_fini(&one), "ending the node");
  check(rcl_shutdown(&context), "ending ROS 2");
  check(rcl_context_fini(&context), "ending ROS 2");
}

int main(int argc, char **argv) {
  static const struct peer peer = {"ros2", writer, reader, matched, send_stamp, receive};
  int code = peer_main(argc, argv, &peer);
  if (sides) take_apart();
  return code;
}

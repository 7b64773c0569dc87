// Ping-pong on rcl, as in compiled ROS 2 nodes: one wait set for all subscriptions of the process.
#define _GNU_SOURCE
#include "pingpong.h"

#include <rcl/error_handling.h>
#include <rcl/rcl.h>
#include <std_msgs/msg/int64.h>

enum { NODES = 2, ENDPOINTS = 2 };

static rcl_context_t context;
static rcl_node_t nodes[NODES];
static rcl_publisher_t publishers[ENDPOINTS];
static rcl_subscription_t subscriptions[ENDPOINTS];
static rcl_node_t *publisher_node[ENDPOINTS], *subscription_node[ENDPOINTS];
static int node_count, publisher_count, subscription_count;
static rcl_wait_set_t wait_set;

static void check(rcl_ret_t ret, const char *what) {
  if (ret != RCL_RET_OK) peer_die("ros2: %s: %s", what, rcl_get_error_string().str);
}

static void *node(int number) {
  if (!rcl_context_is_valid(&context)) {
    rcl_init_options_t options = rcl_get_zero_initialized_init_options();
    check(rcl_init_options_init(&options, rcl_get_default_allocator()), "options");
    context = rcl_get_zero_initialized_context();
    check(rcl_init(0, NULL, &options, &context), "starting ROS 2");
    check(rcl_init_options_fini(&options), "options");
    wait_set = rcl_get_zero_initialized_wait_set();
    check(rcl_wait_set_init(&wait_set, ENDPOINTS, 0, 0, 0, 0, 0, &context, rcl_get_default_allocator()), "wait set");
  }
  char name[32];
  snprintf(name, sizeof name, "pingpong_%d_%d", (int)getpid(), number);
  rcl_node_options_t options = rcl_node_get_default_options();
  rcl_node_t *made = &nodes[node_count++];
  *made = rcl_get_zero_initialized_node();
  check(rcl_node_init(made, name, "", &context, &options), "creating the node");
  return made;
}

static const rosidl_message_type_support_t *type(void) { return ROSIDL_GET_MSG_TYPE_SUPPORT(std_msgs, msg, Int64); }

static void *writer(void *on, const char *topic) {
  rcl_publisher_options_t options = rcl_publisher_get_default_options();
  publisher_node[publisher_count] = on;
  rcl_publisher_t *made = &publishers[publisher_count++];
  *made = rcl_get_zero_initialized_publisher();
  check(rcl_publisher_init(made, on, type(), topic, &options), "creating the publisher");
  return made;
}

static void *reader(void *on, const char *topic) {
  rcl_subscription_options_t options = rcl_subscription_get_default_options();
  subscription_node[subscription_count] = on;
  rcl_subscription_t *made = &subscriptions[subscription_count++];
  *made = rcl_get_zero_initialized_subscription();
  check(rcl_subscription_init(made, on, type(), topic, &options), "creating the subscription");
  return made;
}

static void send(void *publisher, int64_t number) {
  std_msgs__msg__Int64 message = {.data = number};
  check(rcl_publish(publisher, &message, NULL), "publishing");
}

static bool take(void *subscription, int64_t *number) {
  std_msgs__msg__Int64 message;
  rmw_message_info_t info;
  rcl_ret_t ret = rcl_take(subscription, &message, &info, NULL);
  if (ret == RCL_RET_SUBSCRIPTION_TAKE_FAILED) {
    rcl_reset_error();
    return false;
  }
  check(ret, "taking");
  *number = message.data;
  return true;
}

static void wait(int64_t until_ns) {
  int64_t left = until_ns - peer_now();
  if (left <= 0) return;
  check(rcl_wait_set_clear(&wait_set), "wait set");
  for (int i = 0; i < subscription_count; i++)
    check(rcl_wait_set_add_subscription(&wait_set, &subscriptions[i], NULL), "wait set");
  rcl_ret_t ret = rcl_wait(&wait_set, left);
  if (ret != RCL_RET_TIMEOUT) check(ret, "waiting");
}

static void end(void) {
  for (int i = 0; i < publisher_count; i++) check(rcl_publisher_fini(&publishers[i], publisher_node[i]), "ending");
  for (int i = 0; i < subscription_count; i++)
    check(rcl_subscription_fini(&subscriptions[i], subscription_node[i]), "ending");
  check(rcl_wait_set_fini(&wait_set), "ending");
  for (int i = 0; i < node_count; i++) check(rcl_node_fini(&nodes[i]), "ending the node");
  check(rcl_shutdown(&context), "ending ROS 2");
  check(rcl_context_fini(&context), "ending ROS 2");
}

int main(int argc, char **argv) {
  static const struct middleware ros2 = {"ros2", node, writer, reader, send, take, wait, end};
  return pingpong_main(argc, argv, &ros2);
}

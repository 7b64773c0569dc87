// ROS 2 in the `queues` experiment: a publisher or a subscriber of one stream on rcl. Its history
// keeps the last messages or all of them.
//
//   queues-ros2 role=send|receive policy=keep-last|keep-all ...  one stream
#include <rcl/error_handling.h>
#include <rcl/rcl.h>
#include <rosidl_runtime_c/primitives_sequence_functions.h>
#include <std_msgs/msg/u_int8_multi_array.h>

#include <functional>

#include "queues.hpp"

namespace {

using queues::Control;
using queues::Settings;

void check(rcl_ret_t ret, const char* what) {
  if (ret != RCL_RET_OK) queues::die(std::string(what) + ": " + rcl_get_error_string().str);
}

const rosidl_message_type_support_t* type() {
  return ROSIDL_GET_MSG_TYPE_SUPPORT(std_msgs, msg, UInt8MultiArray);
}

rmw_qos_profile_t qos(const Settings& settings) {
  rmw_qos_profile_t qos = rmw_qos_profile_default;
  std::string policy = settings.text("policy");
  if (policy == "keep-all") qos.history = RMW_QOS_POLICY_HISTORY_KEEP_ALL;
  else if (policy != "keep-last") queues::die("policy=" + policy + " is not one of keep-last, keep-all");
  qos.depth = settings.number("depth");
  qos.reliability = RMW_QOS_POLICY_RELIABILITY_RELIABLE;
  qos.durability = RMW_QOS_POLICY_DURABILITY_VOLATILE;
  return qos;
}

/// A node in a context of its own.
struct Node {
  rcl_context_t context = rcl_get_zero_initialized_context();
  rcl_node_t node = rcl_get_zero_initialized_node();

  explicit Node(const std::string& name) {
    rcl_init_options_t options = rcl_get_zero_initialized_init_options();
    check(rcl_init_options_init(&options, rcl_get_default_allocator()), "options");
    check(rcl_init(0, nullptr, &options, &context), "starting ROS 2");
    check(rcl_init_options_fini(&options), "options");
    rcl_node_options_t node_options = rcl_node_get_default_options();
    check(rcl_node_init(&node, name.c_str(), "", &context, &node_options), "creating the node");
  }
  Node(const Node&) = delete;
  ~Node() {
    check(rcl_node_fini(&node), "cleaning up");
    check(rcl_shutdown(&context), "cleaning up");
    check(rcl_context_fini(&context), "cleaning up");
  }
};

void wait_for(const Control& control, const std::function<size_t()>& connected) {
  while (!control.stopped() && connected() == 0) usleep(5000);
}

void send(const Settings& settings, size_t k, const std::string& topic) {
  Node node("queues_send_" + std::to_string(k));
  Control control(1);
  queues::Sender sender(settings, k);
  rcl_publisher_t publisher = rcl_get_zero_initialized_publisher();
  rcl_publisher_options_t options = rcl_publisher_get_default_options();
  options.qos = qos(settings);
  check(rcl_publisher_init(&publisher, &node.node, type(), topic.c_str(), &options),
        "creating the publisher");
  std_msgs__msg__UInt8MultiArray message;
  std_msgs__msg__UInt8MultiArray__init(&message);
  size_t bytes = std::max(settings.number("bytes"), sizeof(queues::Head));
  if (!rosidl_runtime_c__uint8__Sequence__init(&message.data, bytes)) queues::die("no memory");

  wait_for(control, [&] {
    size_t count = 0;
    check(rcl_publisher_get_subscription_count(&publisher, &count), "counting subscriptions");
    return count;
  });
  control.ready();
  size_t refused = 0;
  sender.run(control, [&](const queues::Head& head) {
    std::memcpy(message.data.data, &head, sizeof head);
    // With KEEP_ALL, publishing waits for room and fails after the middleware's time-out.
    if (rcl_publish(&publisher, &message, nullptr) != RCL_RET_OK) {
      rcl_reset_error();
      refused++;
    }
  });
  control.wait_stop();
  if (refused > 0) std::fprintf(stderr, "queues: %zu messages were refused\n", refused);
  protocol_written();
  std_msgs__msg__UInt8MultiArray__fini(&message);
  check(rcl_publisher_fini(&publisher, &node.node), "cleaning up");
}

void receive(const Settings& settings, size_t k, const std::string& topic) {
  Node node("queues_receive_" + std::to_string(k));
  Control control(1);
  queues::Receiver receiver(settings, k);
  rcl_subscription_t subscription = rcl_get_zero_initialized_subscription();
  rcl_subscription_options_t options = rcl_subscription_get_default_options();
  options.qos = qos(settings);
  check(rcl_subscription_init(&subscription, &node.node, type(), topic.c_str(), &options),
        "creating the subscription");
  rcl_guard_condition_t guard = rcl_get_zero_initialized_guard_condition();
  check(rcl_guard_condition_init(&guard, &node.context, rcl_guard_condition_get_default_options()),
        "creating a guard condition");
  rcl_wait_set_t set = rcl_get_zero_initialized_wait_set();
  check(rcl_wait_set_init(&set, 1, 1, 0, 0, 0, 0, &node.context, rcl_get_default_allocator()),
        "creating a wait set");
  std_msgs__msg__UInt8MultiArray message;
  std_msgs__msg__UInt8MultiArray__init(&message);

  wait_for(control, [&] {
    size_t count = 0;
    check(rcl_subscription_get_publisher_count(&subscription, &count), "counting publishers");
    return count;
  });
  control.ready();
  std::thread stopper([&] {
    control.wait_stop();
    check(rcl_trigger_guard_condition(&guard), "waking the subscriber");
  });
  while (!control.stopped()) {
    check(rcl_wait_set_clear(&set), "clearing the wait set");
    check(rcl_wait_set_add_subscription(&set, &subscription, nullptr), "filling the wait set");
    check(rcl_wait_set_add_guard_condition(&set, &guard, nullptr), "filling the wait set");
    check(rcl_wait(&set, -1), "waiting");
    if (!set.subscriptions[0]) continue;
    // One message per wait, as in rclcpp's executors.
    rcl_ret_t ret = rcl_take(&subscription, &message, nullptr, nullptr);
    if (ret == RCL_RET_SUBSCRIPTION_TAKE_FAILED) {
      rcl_reset_error();
      continue;
    }
    check(ret, "taking");
    receiver.process(message.data.data, message.data.size, control);
  }
  stopper.join();
  receiver.write();
  protocol_written();
  std_msgs__msg__UInt8MultiArray__fini(&message);
  check(rcl_wait_set_fini(&set), "cleaning up");
  check(rcl_guard_condition_fini(&guard), "cleaning up");
  check(rcl_subscription_fini(&subscription, &node.node), "cleaning up");
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings(argc, argv);
  std::string role = settings.text("role");
  size_t k = settings.number("first");
  std::string topic = "/" + settings.text("name") + "_" + std::to_string(k);
  if (role == "send") send(settings, k, topic);
  else if (role == "receive") receive(settings, k, topic);
  else queues::die("role=" + role + " is not one of send, receive");
  _exit(0);
}

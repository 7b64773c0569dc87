// Nodes, publishers, timers, subscriptions, services and clients, directly on rcl.
//
// With Style::rclcpp every entity also makes the ros_trace_* calls that rclcpp makes, at the same
// places and in the same order (rclcpp of Jazzy and Kilted).
#pragma once

#include <rcl/error_handling.h>
#include <rcl/graph.h>
#include <rcl/rcl.h>
#include <rosidl_runtime_c/string_functions.h>
#include <std_msgs/msg/string.h>
#include <std_srvs/srv/set_bool.h>
#include <tracetools/tracetools.h>

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "measure.hpp"
#include "rclcpp_stub.hpp"
#include "table.hpp"

namespace syn {

enum class Style { rcl, rclcpp };

inline void check(rcl_ret_t ret, const std::string& what) {
  if (ret != RCL_RET_OK) die(what + " failed: " + rcl_get_error_string().str);
}

/// A callback group; a mutually exclusive one runs one callback at a time.
struct Group {
  bool exclusive = true;
  std::atomic<bool> can_be_taken{true};
};

/// rclcpp registers a callback's symbol only while an LTTng session runs.
inline void register_symbol(const void* callback, const std::string& symbol) {
  if (TRACETOOLS_TRACEPOINT_ENABLED(rclcpp_callback_register))
    TRACETOOLS_DO_TRACEPOINT(rclcpp_callback_register, callback, symbol.c_str());
}

struct NodeHandle {
  std::string name;
  rcl_node_t node = rcl_get_zero_initialized_node();
  rcl_clock_t clock;
  Group group, reentrant;

  NodeHandle(const std::string& node_name, const std::string& name_space, rcl_context_t& context)
      : name(node_name) {
    rcl_node_options_t options = rcl_node_get_default_options();
    check(rcl_node_init(&node, name.c_str(), name_space.c_str(), &context, &options),
          "creating node " + name);
    rcl_allocator_t allocator = rcl_get_default_allocator();
    check(rcl_clock_init(RCL_STEADY_TIME, &clock, &allocator), "creating a clock");
    reentrant.exclusive = false;
  }
  NodeHandle(const NodeHandle&) = delete;
  ~NodeHandle() {
    check(rcl_clock_fini(&clock), "cleaning up");
    check(rcl_node_fini(&node), "cleaning up");
  }
};

/// A std_msgs/String that frees itself.
struct StringMessage {
  std_msgs__msg__String message;
  StringMessage() { std_msgs__msg__String__init(&message); }
  explicit StringMessage(const std::string& text) : StringMessage() {
    rosidl_runtime_c__String__assign(&message.data, text.c_str());
  }
  StringMessage(const StringMessage&) = delete;
  ~StringMessage() { std_msgs__msg__String__fini(&message); }
};

/// rclcpp's intra-process side of a subscription: a ring buffer and a callback of its own.
class IntraSubscription {
 public:
  static constexpr size_t capacity = 10;

  IntraSubscription(rcl_context_t& context, std::function<void(const std::string&)> handler)
      : handler_(std::move(handler)), ring_(capacity) {
    check(rcl_guard_condition_init(&guard, &context, rcl_guard_condition_get_default_options()),
          "creating a guard condition");
    TRACETOOLS_TRACEPOINT(rclcpp_construct_ring_buffer, &ring_, capacity);
    TRACETOOLS_TRACEPOINT(rclcpp_buffer_to_ipb, &ring_, &ipb_);
    TRACETOOLS_TRACEPOINT(rclcpp_ipb_to_subscription, &ipb_, this);
    TRACETOOLS_TRACEPOINT(rclcpp_subscription_callback_added, this, &handler_);
    register_symbol(&handler_, "syn::intra_process");
  }
  IntraSubscription(const IntraSubscription&) = delete;
  ~IntraSubscription() { check(rcl_guard_condition_fini(&guard), "cleaning up"); }

  void enqueue(std::shared_ptr<StringMessage> message) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      write_ = (write_ + 1) % capacity;
      ring_[write_] = std::move(message);
      bool full = size_ == capacity;
      TRACETOOLS_TRACEPOINT(rclcpp_ring_buffer_enqueue, &ring_, write_, size_ + 1, full);
      if (full)
        read_ = (read_ + 1) % capacity;
      else
        size_++;
    }
    check(rcl_trigger_guard_condition(&guard), "waking the executor");
    if (on_ready) on_ready();
  }
  bool has_data() {
    std::lock_guard<std::mutex> lock(mutex_);
    return size_ != 0;
  }
  /// Waitable::take_data.
  std::shared_ptr<StringMessage> take_data() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (size_ == 0) return nullptr;
    auto message = std::move(ring_[read_]);
    TRACETOOLS_TRACEPOINT(rclcpp_ring_buffer_dequeue, &ring_, read_, size_ - 1);
    read_ = (read_ + 1) % capacity;
    size_--;
    return message;
  }
  /// Waitable::execute.
  void execute(const StringMessage& message) {
    TRACETOOLS_TRACEPOINT(callback_start, &handler_, true);
    handler_(message.message.data.data);
    TRACETOOLS_TRACEPOINT(callback_end, &handler_);
  }

  rcl_guard_condition_t guard = rcl_get_zero_initialized_guard_condition();
  /// Waitable::set_on_ready_callback; for executors that are driven by events.
  std::function<void()> on_ready;

 private:
  std::function<void(const std::string&)> handler_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<StringMessage>> ring_;
  char ipb_ = 0;  // only its address counts
  size_t write_ = capacity - 1, read_ = 0, size_ = 0;
};

class Publisher {
 public:
  Publisher(NodeHandle& node, const std::string& topic, Style style) : node_(node), style_(style) {
    rcl_publisher_options_t options = rcl_publisher_get_default_options();
    check(rcl_publisher_init(&handle, &node.node,
                             ROSIDL_GET_MSG_TYPE_SUPPORT(std_msgs, msg, String), topic.c_str(),
                             &options),
          "creating a publisher of " + topic);
    rmw_publisher_t* rmw = rcl_publisher_get_rmw_handle(&handle);
    check(rmw_get_gid_for_publisher(rmw, &gid), "reading a publisher's gid");
  }
  Publisher(const Publisher&) = delete;
  ~Publisher() { check(rcl_publisher_fini(&handle, &node_.node), "cleaning up"); }

  void publish(const std::string& text) {
    auto message = std::make_shared<StringMessage>(text);
    if (!intra.empty()) {
      TRACETOOLS_TRACEPOINT(rclcpp_intra_publish, &handle, &message->message);
      for (auto* subscription : intra) subscription->enqueue(message);
      size_t matched = 0;
      check(rcl_publisher_get_subscription_count(&handle, &matched), "counting subscriptions");
      if (matched <= intra.size()) return;
    }
    if (style_ == Style::rclcpp) TRACETOOLS_TRACEPOINT(rclcpp_publish, nullptr, &message->message);
    check(rcl_publish(&handle, &message->message, nullptr), "publishing");
  }

  rcl_publisher_t handle = rcl_get_zero_initialized_publisher();
  rmw_gid_t gid;
  /// Subscriptions of this process that get messages without the middleware.
  std::vector<IntraSubscription*> intra;

 private:
  NodeHandle& node_;
  Style style_;
};

class Timer : public rclcpp::TimerBase {
 public:
  Timer(NodeHandle& node, rcl_context_t& context, int64_t period_ns, Style style,
        std::function<void()> callback)
      : group(node.group), callback_(std::move(callback)), style_(style) {
    check(rcl_timer_init2(&handle, &node.clock, &context, period_ns, nullptr,
                          rcl_get_default_allocator(), false),
          "creating a timer");
    if (style == Style::rclcpp) {
      TRACETOOLS_TRACEPOINT(rclcpp_timer_callback_added, &handle, &callback_);
      register_symbol(&callback_, "syn::timer");
      TRACETOOLS_TRACEPOINT(rclcpp_timer_link_node, &handle, &node.node);
    }
  }
  Timer(const Timer&) = delete;
  ~Timer() override { check(rcl_timer_fini(&handle), "cleaning up"); }

  /// Tells rcl that the timer is executed now; false if it was cancelled in between.
  bool call() {
    rcl_timer_call_info_t info;
    rcl_ret_t ret = style_ == Style::rclcpp ? rcl_timer_call_with_info(&handle, &info)
                                            : rcl_timer_call(&handle);
    if (ret == RCL_RET_TIMER_CANCELED) {
      rcl_reset_error();
      return false;
    }
    check(ret, "calling a timer");
    return true;
  }
  void execute() override {
    if (style_ == Style::rclcpp) TRACETOOLS_TRACEPOINT(callback_start, &callback_, false);
    callback_();
    if (style_ == Style::rclcpp) TRACETOOLS_TRACEPOINT(callback_end, &callback_);
  }

  rcl_timer_t handle = rcl_get_zero_initialized_timer();
  Group& group;

 private:
  std::function<void()> callback_;
  Style style_;
};

class Subscription : public rclcpp::SubscriptionBase {
 public:
  using Handler = std::function<void(const std::string&)>;

  Subscription(NodeHandle& node, rcl_context_t& context, const std::string& topic, Style style,
               bool with_intra, Handler handler)
      : group(node.group), topic(topic), handler_(std::move(handler)), node_(node), style_(style) {
    rcl_subscription_options_t options = rcl_subscription_get_default_options();
    check(rcl_subscription_init(&handle, &node.node,
                                ROSIDL_GET_MSG_TYPE_SUPPORT(std_msgs, msg, String), topic.c_str(),
                                &options),
          "creating a subscription of " + topic);
    if (with_intra) {
      intra = std::make_unique<IntraSubscription>(context, handler_);
      TRACETOOLS_TRACEPOINT(rclcpp_subscription_init, &handle, intra.get());
    }
    if (style == Style::rclcpp) {
      TRACETOOLS_TRACEPOINT(rclcpp_subscription_init, &handle, this);
      TRACETOOLS_TRACEPOINT(rclcpp_subscription_callback_added, this, &handler_);
      register_symbol(&handler_, "syn::subscription");
    }
  }
  Subscription(const Subscription&) = delete;
  ~Subscription() override { check(rcl_subscription_fini(&handle, &node_.node), "cleaning up"); }

  void execute() override {
    StringMessage taken;
    rmw_message_info_t info = rmw_get_zero_initialized_message_info();
    rcl_ret_t ret = rcl_take(&handle, &taken.message, &info, nullptr);
    if (style_ == Style::rclcpp) TRACETOOLS_TRACEPOINT(rclcpp_take, &taken.message);
    if (ret == RCL_RET_SUBSCRIPTION_TAKE_FAILED) {
      rcl_reset_error();
      return;
    }
    check(ret, "taking from " + topic);
    // A publisher of this process has delivered it already.
    for (auto* publisher : local_publishers) {
      bool equal = false;
      check(rmw_compare_gids_equal(&publisher->gid, &info.publisher_gid, &equal), "comparing gids");
      if (equal) return;
    }
    if (style_ == Style::rclcpp) TRACETOOLS_TRACEPOINT(callback_start, &handler_, false);
    handler_(taken.message.data.data);
    if (style_ == Style::rclcpp) TRACETOOLS_TRACEPOINT(callback_end, &handler_);
  }

  rcl_subscription_t handle = rcl_get_zero_initialized_subscription();
  Group& group;
  const std::string topic;
  std::unique_ptr<IntraSubscription> intra;
  std::vector<Publisher*> local_publishers;

 private:
  Handler handler_;
  NodeHandle& node_;
  Style style_;
};

class Service : public rclcpp::ServiceBase {
 public:
  Service(NodeHandle& node, const std::string& name, Style style,
          std::function<void(bool)> callback)
      : group(node.reentrant), callback_(std::move(callback)), node_(node), style_(style) {
    rcl_service_options_t options = rcl_service_get_default_options();
    check(rcl_service_init(&handle, &node.node,
                           ROSIDL_GET_SRV_TYPE_SUPPORT(std_srvs, srv, SetBool), name.c_str(),
                           &options),
          "creating service " + name);
    if (style == Style::rclcpp) {
      TRACETOOLS_TRACEPOINT(rclcpp_service_callback_added, &handle, &callback_);
      register_symbol(&callback_, "syn::service");
    }
  }
  Service(const Service&) = delete;
  ~Service() override { check(rcl_service_fini(&handle, &node_.node), "cleaning up"); }

  void execute() override {
    rmw_request_id_t header;
    std_srvs__srv__SetBool_Request request;
    std_srvs__srv__SetBool_Request__init(&request);
    rcl_ret_t ret = rcl_take_request(&handle, &header, &request);
    if (ret == RCL_RET_SERVICE_TAKE_FAILED) {
      rcl_reset_error();
      return;
    }
    check(ret, "taking a request");
    if (style_ == Style::rclcpp) TRACETOOLS_TRACEPOINT(callback_start, &callback_, false);
    std_srvs__srv__SetBool_Response response;
    std_srvs__srv__SetBool_Response__init(&response);
    callback_(request.data);
    response.success = true;
    if (style_ == Style::rclcpp) TRACETOOLS_TRACEPOINT(callback_end, &callback_);
    check(rcl_send_response(&handle, &header, &response), "sending a response");
    std_srvs__srv__SetBool_Response__fini(&response);
    std_srvs__srv__SetBool_Request__fini(&request);
  }

  rcl_service_t handle = rcl_get_zero_initialized_service();
  Group& group;

 private:
  std::function<void(bool)> callback_;
  NodeHandle& node_;
  Style style_;
};

class Client : public rclcpp::ClientBase {
 public:
  Client(NodeHandle& node, const std::string& name, std::function<void(const Stamps&)> callback)
      : group(node.reentrant), callback_(std::move(callback)), node_(node) {
    rcl_client_options_t options = rcl_client_get_default_options();
    check(rcl_client_init(&handle, &node.node, ROSIDL_GET_SRV_TYPE_SUPPORT(std_srvs, srv, SetBool),
                          name.c_str(), &options),
          "creating a client of " + name);
  }
  Client(const Client&) = delete;
  ~Client() override { check(rcl_client_fini(&handle, &node_.node), "cleaning up"); }

  void send(bool data, const Stamps& context) {
    std_srvs__srv__SetBool_Request request;
    std_srvs__srv__SetBool_Request__init(&request);
    request.data = data;
    // The response may be there before rcl_send_request returns.
    std::lock_guard<std::mutex> lock(mutex_);
    int64_t sequence;
    check(rcl_send_request(&handle, &request, &sequence), "sending a request");
    pending_[sequence] = context;
    std_srvs__srv__SetBool_Request__fini(&request);
  }
  void execute() override {
    rmw_request_id_t header;
    std_srvs__srv__SetBool_Response response;
    std_srvs__srv__SetBool_Response__init(&response);
    rcl_ret_t ret = rcl_take_response(&handle, &header, &response);
    std_srvs__srv__SetBool_Response__fini(&response);
    if (ret == RCL_RET_CLIENT_TAKE_FAILED) {
      rcl_reset_error();
      return;
    }
    check(ret, "taking a response");
    Stamps context;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      auto found = pending_.find(header.sequence_number);
      if (found == pending_.end()) return;
      context = std::move(found->second);
      pending_.erase(found);
    }
    callback_(context);
  }
  bool ready() {
    bool available = false;
    check(rcl_service_server_is_available(&node_.node, &handle, &available), "asking for a server");
    return available;
  }

  rcl_client_t handle = rcl_get_zero_initialized_client();
  Group& group;

 private:
  std::function<void(const Stamps&)> callback_;
  NodeHandle& node_;
  std::mutex mutex_;
  std::map<int64_t, Stamps> pending_;
};

}  // namespace syn

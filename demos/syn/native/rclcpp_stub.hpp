// Stands in for the part of rclcpp's ABI that a tracer can see: the exported execute_* functions.
//
// The names and the signatures mangle to the symbols of rclcpp since Jazzy; what they do is ours.
#pragma once

#include <memory>

namespace rclcpp {

/// What an executor can run; each kind has a base of its own, as in rclcpp.
struct SubscriptionBase {
  virtual ~SubscriptionBase() = default;
  virtual void execute() = 0;
};
struct TimerBase {
  virtual ~TimerBase() = default;
  virtual void execute() = 0;
};
struct ServiceBase {
  virtual ~ServiceBase() = default;
  virtual void execute() = 0;
};
struct ClientBase {
  virtual ~ClientBase() = default;
  virtual void execute() = 0;
};

/// Lyrical passes shared pointers by reference, which changes the symbols.
#ifdef LYRICAL
template <typename T>
using Shared = const std::shared_ptr<T>&;
#else
template <typename T>
using Shared = std::shared_ptr<T>;
#endif

class Executor {
 public:
  static void execute_subscription(Shared<SubscriptionBase> subscription);
  static void execute_timer(Shared<TimerBase> timer, const std::shared_ptr<void>& data);
  static void execute_service(Shared<ServiceBase> service);
  static void execute_client(Shared<ClientBase> client);
};

}  // namespace rclcpp

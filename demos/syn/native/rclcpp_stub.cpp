// Bodies of the execute_* functions: run what was given.
#include "rclcpp_stub.hpp"

namespace rclcpp {

void Executor::execute_subscription(Shared<SubscriptionBase> subscription) {
  subscription->execute();
}
void Executor::execute_timer(Shared<TimerBase> timer, const std::shared_ptr<void>&) {
  timer->execute();
}
void Executor::execute_service(Shared<ServiceBase> service) { service->execute(); }
void Executor::execute_client(Shared<ClientBase> client) { client->execute(); }

}  // namespace rclcpp

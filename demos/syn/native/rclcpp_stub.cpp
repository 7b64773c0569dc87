// Bodies of the execute_* functions: run what was given.
#include "rclcpp_stub.hpp"

namespace rclcpp {

void Executor::execute_subscription(std::shared_ptr<SubscriptionBase> subscription) {
  subscription->execute();
}
void Executor::execute_timer(std::shared_ptr<TimerBase> timer, const std::shared_ptr<void>&) {
  timer->execute();
}
void Executor::execute_service(std::shared_ptr<ServiceBase> service) { service->execute(); }
void Executor::execute_client(std::shared_ptr<ClientBase> client) { client->execute(); }

}  // namespace rclcpp

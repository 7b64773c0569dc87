// A small executor on rcl's wait set, for one thread or several.
//
// In Style::rclcpp it takes the steps of rclcpp's executors: get the next ready entity, wait if
// there is none, execute, with their trace calls. In Style::rcl it makes none.
#pragma once

#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "entities.hpp"

namespace syn {

/// Runs the entities of a process.
class Spinner {
 public:
  Spinner() = default;
  Spinner(const Spinner&) = delete;
  virtual ~Spinner() = default;

  virtual void spin(size_t threads) = 0;
  virtual void stop() = 0;
  virtual void wake() = 0;

  std::vector<std::shared_ptr<Timer>> timers;
  std::vector<std::shared_ptr<Subscription>> subscriptions;
  std::vector<std::shared_ptr<Service>> services;
  std::vector<std::shared_ptr<Client>> clients;
};

class Executor : public Spinner {
 public:
  Executor(rcl_context_t& context, Style style) : context_(context), style_(style) {
    check(rcl_guard_condition_init(&interrupt_, &context,
                                   rcl_guard_condition_get_default_options()),
          "creating a guard condition");
  }
  ~Executor() override {
    check(rcl_wait_set_fini(&wait_set_), "cleaning up");
    check(rcl_guard_condition_fini(&interrupt_), "cleaning up");
  }

  void spin(size_t threads) override {
    check(rcl_wait_set_init(&wait_set_, subscriptions.size(), subscriptions.size() + 1,
                            timers.size(), clients.size(), services.size(), 0, &context_,
                            rcl_get_default_allocator()),
          "creating a wait set");
    threads_ = threads;
    std::vector<std::thread> others;
    for (size_t i = 1; i < threads; i++) others.emplace_back([this] { run(); });
    run();
    for (auto& thread : others) thread.join();
  }
  void stop() override {
    spinning_ = false;
    wake();
  }
  void wake() override { check(rcl_trigger_guard_condition(&interrupt_), "waking the executor"); }

 private:
  /// What to execute next; exactly one pointer is set.
  struct Ready {
    std::shared_ptr<Timer> timer;
    std::shared_ptr<Subscription> subscription;
    std::shared_ptr<Service> service;
    std::shared_ptr<Client> client;
    std::shared_ptr<Subscription> waitable;
    std::shared_ptr<StringMessage> data;
    Group* group = nullptr;
  };

  void run() {
    while (spinning_) {
      Ready ready;
      {
        std::lock_guard<std::mutex> lock(wait_mutex_);
        if (!spinning_) return;
        if (!get_next_ready(ready)) {
          wait_for_work();
          if (!spinning_ || !get_next_ready(ready)) continue;
        }
      }
      execute(ready);
      ready.group->can_be_taken = true;
      // Another thread may wait without the entities of this group.
      if (threads_ > 1 && ready.group->exclusive) wake();
    }
  }

  void wait_for_work() {
    if (style_ == Style::rclcpp) TRACETOOLS_TRACEPOINT(rclcpp_executor_wait_for_work, -1);
    check(rcl_wait_set_clear(&wait_set_), "clearing a wait set");
    auto add = [](auto& entity, auto function, rcl_wait_set_t* set) {
      if (entity->group.can_be_taken)
        check(function(set, &entity->handle, nullptr), "filling a wait set");
    };
    for (auto& timer : timers) add(timer, rcl_wait_set_add_timer, &wait_set_);
    for (auto& subscription : subscriptions) {
      add(subscription, rcl_wait_set_add_subscription, &wait_set_);
      auto* intra = subscription->intra.get();
      if (intra && subscription->group.can_be_taken) {
        if (intra->has_data()) check(rcl_trigger_guard_condition(&intra->guard), "waking");
        check(rcl_wait_set_add_guard_condition(&wait_set_, &intra->guard, nullptr), "filling");
      }
    }
    for (auto& client : clients) add(client, rcl_wait_set_add_client, &wait_set_);
    for (auto& service : services) add(service, rcl_wait_set_add_service, &wait_set_);
    check(rcl_wait_set_add_guard_condition(&wait_set_, &interrupt_, nullptr), "filling a wait set");
    rcl_ret_t ret = rcl_wait(&wait_set_, -1);
    if (ret != RCL_RET_TIMEOUT) check(ret, "waiting");
    waited_ = true;
  }

  /// Takes the first entity out of the wait set that is ready and may run.
  template <typename Handle, typename Entities>
  auto take_ready(const Handle** handles, size_t size, Entities& entities) ->
      typename Entities::value_type {
    for (size_t i = 0; i < size; i++) {
      if (!handles[i]) continue;
      for (auto& entity : entities) {
        if (&entity->handle != handles[i] || !entity->group.can_be_taken) continue;
        handles[i] = nullptr;
        return entity;
      }
    }
    return nullptr;
  }

  bool get_next_ready(Ready& ready) {
    if (style_ == Style::rclcpp) TRACETOOLS_TRACEPOINT(rclcpp_executor_get_next_ready);
    if (!waited_) return false;
    while (auto timer = take_ready(wait_set_.timers, wait_set_.size_of_timers, timers)) {
      if (!timer->call()) continue;
      ready.timer = timer;
      return claim(ready, timer->group);
    }
    if (auto found = take_ready(wait_set_.subscriptions, wait_set_.size_of_subscriptions,
                                subscriptions)) {
      ready.subscription = found;
      return claim(ready, found->group);
    }
    if (auto found = take_ready(wait_set_.services, wait_set_.size_of_services, services)) {
      ready.service = found;
      return claim(ready, found->group);
    }
    if (auto found = take_ready(wait_set_.clients, wait_set_.size_of_clients, clients)) {
      ready.client = found;
      return claim(ready, found->group);
    }
    for (auto& subscription : subscriptions) {
      if (!subscription->intra || !subscription->group.can_be_taken) continue;
      if (!(ready.data = subscription->intra->take_data())) continue;
      ready.waitable = subscription;
      return claim(ready, subscription->group);
    }
    waited_ = false;
    return false;
  }

  bool claim(Ready& ready, Group& group) {
    ready.group = &group;
    if (group.exclusive) group.can_be_taken = false;
    return true;
  }

  void execute(Ready& ready) {
    if (style_ == Style::rcl) {
      if (ready.timer) ready.timer->execute();
      if (ready.subscription) ready.subscription->execute();
      if (ready.service) ready.service->execute();
      if (ready.client) ready.client->execute();
      return;
    }
    if (ready.timer) {
      TRACETOOLS_TRACEPOINT(rclcpp_executor_execute, &ready.timer->handle);
      rclcpp::Executor::execute_timer(ready.timer, nullptr);
    }
    if (ready.subscription) {
      TRACETOOLS_TRACEPOINT(rclcpp_executor_execute, &ready.subscription->handle);
      rclcpp::Executor::execute_subscription(ready.subscription);
    }
    if (ready.service) rclcpp::Executor::execute_service(ready.service);
    if (ready.client) rclcpp::Executor::execute_client(ready.client);
    if (ready.waitable) ready.waitable->intra->execute(*ready.data);
  }

  rcl_context_t& context_;
  Style style_;
  rcl_guard_condition_t interrupt_ = rcl_get_zero_initialized_guard_condition();
  rcl_wait_set_t wait_set_ = rcl_get_zero_initialized_wait_set();
  std::mutex wait_mutex_;
  std::atomic<bool> spinning_{true};
  bool waited_ = false;
  size_t threads_ = 1;
};

}  // namespace syn

// An executor that is driven by events, for several threads: it never calls rcl_wait.
//
// It takes the steps of rclcpp's EventsCBGExecutor, call by call. The middleware's callbacks put
// ready entities into the queue of their group, and a thread of its own puts timers there. A worker
// takes the first event of a group and executes it; a timer is called just before. A mutually exclusive group is taken
// again after its execution, a reentrant one at once, so that its callbacks overlap, also each one
// itself.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "executor.hpp"

namespace syn {

class EventsExecutor : public Spinner {
 public:
  explicit EventsExecutor(Style style) : style_(style) {}

  void spin(size_t threads) override {
    listen();
    std::thread clock([this] { watch_timers(); });
    std::vector<std::thread> others;
    for (size_t i = 1; i < threads; i++) others.emplace_back([this] { work(); });
    work();
    for (auto& thread : others) thread.join();
    {
      std::lock_guard<std::mutex> lock(timers_mutex_);
      timers_changed_.notify_all();
    }
    clock.join();
    ignore();
  }
  void stop() override {
    std::lock_guard<std::mutex> lock(mutex_);
    spinning_ = false;
    work_ready_.notify_all();
  }
  /// A reset timer reports itself.
  void wake() override {}

 private:
  using Clock = std::chrono::steady_clock;

  /// One ready event of an entity; exactly one pointer is set.
  struct Ready {
    Timer* timer = nullptr;
    Subscription* subscription = nullptr;
    Subscription* waitable = nullptr;
    Service* service = nullptr;
    Client* client = nullptr;
  };
  /// The events of a group, first in, first out.
  struct Queue {
    bool exclusive = true, executing = false, listed = false;
    std::deque<Ready> events;
  };
  /// The address that the middleware gives back.
  struct Source {
    EventsExecutor* executor;
    Group* group;
    Ready ready;
  };

  static void on_event(const void* source, size_t count) {
    auto* from = static_cast<const Source*>(source);
    from->executor->add(*from->group, from->ready, count);
  }
  static void on_timer_reset(const void* source, size_t) {
    auto* from = static_cast<const Source*>(source);
    from->executor->schedule(from->ready.timer);
  }

  Source* source(Group& group, Ready ready) {
    sources_.push_back(std::make_unique<Source>(Source{this, &group, ready}));
    queues_[&group].exclusive = group.exclusive;
    return sources_.back().get();
  }

  void listen() {
    for (auto& s : subscriptions) {
      check(rcl_subscription_set_on_new_message_callback(
                &s->handle, on_event, source(s->group, {nullptr, s.get()})),
            "listening");
      if (auto* intra = s->intra.get()) {
        auto* from = source(s->group, {nullptr, nullptr, s.get()});
        intra->on_ready = [from] { on_event(from, 1); };
      }
    }
    for (auto& s : services)
      check(rcl_service_set_on_new_request_callback(
                &s->handle, on_event, source(s->group, {nullptr, nullptr, nullptr, s.get()})),
            "listening");
    for (auto& c : clients)
      check(rcl_client_set_on_new_response_callback(
                &c->handle, on_event,
                source(c->group, {nullptr, nullptr, nullptr, nullptr, c.get()})),
            "listening");
    for (auto& t : timers) {
      timer_sources_[t.get()] = source(t->group, {t.get()});
      check(rcl_timer_set_on_reset_callback(&t->handle, on_timer_reset, timer_sources_[t.get()]),
            "listening");
      schedule(t.get());
    }
  }
  void ignore() {
    for (auto& s : subscriptions) {
      check(rcl_subscription_set_on_new_message_callback(&s->handle, nullptr, nullptr), "ending");
      if (s->intra) s->intra->on_ready = nullptr;
    }
    for (auto& s : services)
      check(rcl_service_set_on_new_request_callback(&s->handle, nullptr, nullptr), "ending");
    for (auto& c : clients)
      check(rcl_client_set_on_new_response_callback(&c->handle, nullptr, nullptr), "ending");
    for (auto& t : timers)
      check(rcl_timer_set_on_reset_callback(&t->handle, nullptr, nullptr), "ending");
  }

  // ---- timers

  void schedule(Timer* timer) {
    std::lock_guard<std::mutex> lock(timers_mutex_);
    int64_t next_ns = 0;
    rcl_ret_t ret = rcl_timer_get_next_call_time(&timer->handle, &next_ns);
    for (auto at = running_.begin(); at != running_.end();)
      at = at->second == timer ? running_.erase(at) : std::next(at);
    if (ret != RCL_RET_OK) {
      rcl_reset_error();
      return;
    }
    running_.emplace(next_ns, timer);
    timers_changed_.notify_all();
  }

  void watch_timers() {
    std::unique_lock<std::mutex> lock(timers_mutex_);
    while (spinning_) {
      call_ready(lock);
      if (running_.empty())
        timers_changed_.wait_for(lock, std::chrono::milliseconds(100));
      else
        timers_changed_.wait_until(
            lock, Clock::time_point(std::chrono::nanoseconds(running_.begin()->first)));
    }
  }

  void call_ready(std::unique_lock<std::mutex>& lock) {
    while (!running_.empty()) {
      Timer* timer = running_.begin()->second;
      int64_t left_ns = 0;
      rcl_ret_t ret = rcl_timer_get_time_until_next_call(&timer->handle, &left_ns);
      if (ret == RCL_RET_OK && left_ns > 0) return;
      running_.erase(running_.begin());
      if (ret != RCL_RET_OK) {
        rcl_reset_error();
        continue;
      }
      // A worker may hold the other lock and schedule a timer.
      lock.unlock();
      on_event(timer_sources_[timer], 1);
      lock.lock();
    }
  }

  // ---- work

  void add(Group& group, Ready ready, size_t count) {
    std::lock_guard<std::mutex> lock(mutex_);
    Queue& queue = queues_.at(&group);
    for (size_t i = 0; i < count; i++) queue.events.push_back(ready);
    list(queue);
  }

  /// Offers a group to the workers if it has events and may run.
  void list(Queue& queue) {
    if (queue.events.empty() || queue.listed || (queue.exclusive && queue.executing)) return;
    queue.listed = true;
    listed_.push_back(&queue);
    work_ready_.notify_one();
  }

  Queue* next(Ready& ready) {
    while (!listed_.empty()) {
      Queue* queue = listed_.front();
      listed_.pop_front();
      queue->listed = false;
      if (queue->events.empty()) continue;
      ready = queue->events.front();
      queue->events.pop_front();
      queue->executing = queue->exclusive;
      list(*queue);
      return queue;
    }
    return nullptr;
  }

  void work() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (spinning_) {
      Ready ready;
      Queue* queue = next(ready);
      if (!queue) {
        work_ready_.wait(lock);
        continue;
      }
      lock.unlock();
      execute(ready);
      lock.lock();
      queue->executing = false;
      list(*queue);
    }
  }

  /// Returns a pointer of the type that rclcpp shares. It does not own the entity.
  template <typename Entity>
  static std::shared_ptr<Entity> shared(Entity* entity) {
    return std::shared_ptr<Entity>(entity, [](Entity*) {});
  }

  void execute(const Ready& ready) {
    bool direct = style_ == Style::rcl;
    if (ready.timer) {
      // A cancelled timer reports itself when it is reset.
      if (!ready.timer->call()) return;
      if (direct) ready.timer->execute();
      else rclcpp::Executor::execute_timer(shared(ready.timer), nullptr);
      schedule(ready.timer);
    }
    if (ready.subscription) {
      if (direct) ready.subscription->execute();
      else rclcpp::Executor::execute_subscription(shared(ready.subscription));
    }
    if (ready.service) {
      if (direct) ready.service->execute();
      else rclcpp::Executor::execute_service(shared(ready.service));
    }
    if (ready.client) {
      if (direct) ready.client->execute();
      else rclcpp::Executor::execute_client(shared(ready.client));
    }
    if (ready.waitable) {
      auto data = ready.waitable->intra->take_data();
      if (data) ready.waitable->intra->execute(*data);
    }
  }

  Style style_;
  std::mutex mutex_;
  std::condition_variable work_ready_;
  std::map<Group*, Queue> queues_;
  std::deque<Queue*> listed_;
  std::vector<std::unique_ptr<Source>> sources_;
  std::map<Timer*, Source*> timer_sources_;
  std::mutex timers_mutex_;
  std::condition_variable timers_changed_;
  std::multimap<int64_t, Timer*> running_;  // by the time of their next call
  std::atomic<bool> spinning_{true};
};

}  // namespace syn

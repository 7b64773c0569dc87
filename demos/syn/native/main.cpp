// SYN as a compiled client on rcl: the nodes that the launcher (syn.py --native) asks for.
#include <atomic>
#include <algorithm>
#include <csignal>
#include <fstream>
#include <iostream>

#include "events.hpp"
#include "executor.hpp"

namespace syn {
namespace {

std::atomic<bool> interrupted{false};

struct Options {
  std::vector<std::string> nodes;
  std::string table, barrier, raw, name_space;
  double duration = 10;
  size_t threads = 1;
  Style style = Style::rcl;
  bool events = false;
  bool intra = false;
  bool reentrant = false;
  bool turns = false;
};

Options read_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i++) {
    std::string word = argv[i];
    if (word == "--intra") {
      options.intra = true;
      continue;
    }
    if (word == "--reentrant") {
      options.reentrant = true;
      continue;
    }
    if (word == "--turns") {
      options.turns = true;
      continue;
    }
    if (i + 1 == argc) die("option " + word + " needs a value");
    std::string value = argv[++i];
    if (word == "--nodes") options.nodes = split(value, ',');
    else if (word == "--table") options.table = value;
    else if (word == "--barrier") options.barrier = value;
    else if (word == "--raw") options.raw = value;
    else if (word == "--namespace") options.name_space = value;
    else if (word == "--duration") options.duration = std::stod(value);
    else if (word == "--threads") options.threads = std::stoul(value);
    else if (word == "--executor") options.events = value == "events";
    else if (word == "--as") options.style = value == "rclcpp" ? Style::rclcpp : Style::rcl;
    else die("no option " + word + ": start this program with syn.py --native");
  }
  if (options.intra && options.style != Style::rclcpp) die("--intra needs --as rclcpp");
  return options;
}

/// The nodes of this process and what connects them.
class App {
 public:
  App(const Options& options, const Table& table, rcl_context_t& context)
      : options_(options), table_(table), context_(context) {
    if (options.events) executor_ = std::make_unique<EventsExecutor>(options.style);
    else executor_ = std::make_unique<Executor>(context, options.style);
    for (auto& name : options.nodes)
      nodes_.push_back(std::make_unique<NodeHandle>(name, options.name_space, context));
    for (auto& node : nodes_) {
      node->group.exclusive = !options.reentrant;
      for (auto& cb : table.callbacks)
        if (cb.node == node->name) create(*node, cb);
    }
    if (options.intra) connect_intra();
  }

  void spin() { executor_->spin(options_.threads); }

  /// Waits until all is connected, runs the timers for the duration, and ends the executor.
  void direct() {
    auto deadline = monotonic_ns() + 20'000'000'000;
    while (!connected() && monotonic_ns() < deadline && !interrupted) pause_ms(50);
    std::ofstream(options_.barrier + "/" + name()).flush();
    while (access((options_.barrier + "/go").c_str(), F_OK) != 0 && !interrupted) pause_ms(10);
    pause_ms(300);  // the other side may discover us a moment later than we it
    for (auto& timer : executor_->timers) check(rcl_timer_reset(&timer->handle), "starting a timer");
    executor_->wake();
    auto end = monotonic_ns() + static_cast<int64_t>(options_.duration * 1e9);
    while (monotonic_ns() < end && !interrupted) pause_ms(10);
    for (auto& timer : executor_->timers) check(rcl_timer_cancel(&timer->handle), "ending a timer");
    // Items in flight arrive, also on a machine that is short of CPU.
    auto cancelled = monotonic_ns();
    while (monotonic_ns() < std::min(std::max(measured.last_ns.load(), cancelled) + 1'500'000'000,
                                     cancelled + 15'000'000'000))
      pause_ms(50);
    executor_->stop();
  }

  Measurements measured;

 private:
  static void pause_ms(long ms) {
    timespec t{ms / 1000, ms % 1000 * 1'000'000};
    nanosleep(&t, nullptr);
  }

  std::string name() const {
    std::string joined;
    for (auto& node : options_.nodes) joined += (joined.empty() ? "" : "+") + node;
    return joined;
  }

  void create(NodeHandle& node, const Callback& cb) {
    for (auto& topic : cb.publishes) {
      auto& publisher = publishers_[node.name + topic];
      if (!publisher) publisher = std::make_unique<Publisher>(node, topic, options_.style);
    }
    if (cb.kind == "timer") {
      executor_->timers.push_back(std::make_shared<Timer>(node, context_, cb.period_ns,
                                                         options_.style,
                                                         [this, &cb] { on_timer(cb); }));
    } else if (cb.kind == "subscription") {
      executor_->subscriptions.push_back(std::make_shared<Subscription>(
          node, context_, cb.input, options_.style, options_.intra,
          [this, &cb](const std::string& text) { on_message(cb, text); }));
    } else if (cb.kind == "service") {
      executor_->services.push_back(std::make_shared<Service>(
          node, cb.input, options_.style, [this, &cb](bool first) { on_request(cb, first); }));
    } else if (cb.kind == "client") {
      auto client = std::make_shared<Client>(
          node, cb.input, [this, &cb](const Stamps& stamps) { on_response(cb, stamps); });
      executor_->clients.push_back(client);
      clients_[cb.name] = client.get();
    }
  }

  void connect_intra() {
    for (auto& [key, publisher] : publishers_) {
      std::string topic = key.substr(key.find('/'));
      for (auto& subscription : executor_->subscriptions) {
        if (subscription->topic != topic) continue;
        publisher->intra.push_back(subscription->intra.get());
        subscription->local_publishers.push_back(publisher.get());
      }
    }
  }

  bool connected() {
    for (auto& [key, publisher] : publishers_) {
      size_t matched = 0;
      check(rcl_publisher_get_subscription_count(&publisher->handle, &matched), "counting");
      if (matched < table_.subscribers(key.substr(key.find('/')))) return false;
    }
    for (auto& subscription : executor_->subscriptions) {
      size_t count = 0;
      check(rcl_count_publishers(&nodes_[0]->node, subscription->topic.c_str(), &count),
            "counting publishers");
      if (count < table_.publishers(subscription->topic)) return false;
    }
    for (auto& [cb_name, client] : clients_)
      if (table_.service(table_.named(cb_name)->input) && !client->ready()) return false;
    return true;
  }

  void on_timer(const Callback& cb) {
    Execution run(cb);
    Stamps completes = send(cb, {{run.start_ns, cb.name}});
    run.end(measured, "", completes);
  }

  void on_message(const Callback& cb, const std::string& text) {
    Execution run(cb);
    Stamps stamps = extended(parse(text), cb.name), completes;
    if (cb.joins.empty())
      completes = send(cb, stamps);
    else
      join(cb, stamps);
    run.end(measured, "", completes);
  }

  void on_request(const Callback& cb, bool first) {
    Execution run(cb);
    run.end(measured, table_.callers(cb.input)[first ? 0 : 1]);
  }

  void on_response(const Callback& cb, const Stamps& stamps) {
    Execution run(cb);
    std::string hop = table_.service(cb.input)->name + "@" + cb.node + ">" + cb.name;
    Stamps completes = send(cb, extended(stamps, hop));
    run.end(measured, "", completes);
  }

  /// Publishes once after one input of each subscription of the group, of each the newest.
  void join(const Callback& cb, const Stamps& stamps) {
    const Callback& sync = *table_.named(cb.joins);
    Stamps merged;
    {
      std::lock_guard<std::mutex> lock(join_mutex_);
      auto& group = waiting_[cb.joins];
      group[cb.name] = stamps;
      auto members = table_.members(cb.joins);
      if (group.size() < members.size()) return;
      for (auto* member : members)
        for (auto& stamp : extended(group[member->name], sync.name)) merged.push_back(stamp);
      group.clear();
    }
    int64_t cpu = cpu_ns();
    burn_until(cpu + sync.exec_ns);
    send(sync, merged);
    measured.executed(sync.name, cpu_ns() - cpu, 0);
  }

  /// What a callback does at its end: publish, call, or nothing. Returns the chains that the
  /// callback completes by ending.
  Stamps send(const Callback& cb, const Stamps& stamps) {
    int64_t before = monotonic_ns();
    size_t topics = cb.publishes.size();
    size_t first = options_.turns && topics > 1 ? turn_++ % topics : 0;
    for (size_t i = 0; i < topics; i++)
      publishers_[cb.node + cb.publishes[(first + i) % topics]]->publish(format(stamps));
    if (table_.sink(cb)) {
      if (cb.publishes.empty()) return stamps;
      // The message left somewhere between these two moments.
      int64_t end = before + (monotonic_ns() - before) / 2;
      for (auto& stamp : stamps) measured.completed(stamp.path, end - stamp.start_ns);
    }
    if (cb.calls.empty()) return {};
    const Callback& client = *table_.named(cb.calls);
    if (!table_.service(client.input)) return {};
    clients_[client.name]->send(table_.callers(client.input)[0] == client.node, stamps);
    return {};
  }

  const Options& options_;
  const Table& table_;
  rcl_context_t& context_;
  std::vector<std::unique_ptr<NodeHandle>> nodes_;
  std::map<std::string, std::unique_ptr<Publisher>> publishers_;  // by node and topic
  std::map<std::string, Client*> clients_;
  std::unique_ptr<Spinner> executor_;
  std::atomic<size_t> turn_ = 0;
  std::mutex join_mutex_;
  std::map<std::string, std::map<std::string, Stamps>> waiting_;
};

}  // namespace
}  // namespace syn

int main(int argc, char** argv) {
  using namespace syn;
  Options options = read_options(argc, argv);
  Table table = Table::read(options.table);
  for (int number : {SIGINT, SIGTERM})
    std::signal(number, [](int) { interrupted = true; });

  rcl_init_options_t init = rcl_get_zero_initialized_init_options();
  check(rcl_init_options_init(&init, rcl_get_default_allocator()), "preparing rcl");
  rcl_context_t context = rcl_get_zero_initialized_context();
  check(rcl_init(0, nullptr, &init, &context), "starting rcl");
  check(rcl_init_options_fini(&init), "preparing rcl");
  {
    App app(options, table, context);
    std::thread director([&app] { app.direct(); });
    app.spin();
    director.join();
    app.measured.write(options.raw);
  }
  check(rcl_shutdown(&context), "ending rcl");
  check(rcl_context_fini(&context), "ending rcl");
  return 0;
}

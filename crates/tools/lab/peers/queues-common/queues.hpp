// The parts that the C++ peers of the `queues` experiment share: settings, streams, logs, and their
// side of the protocol. README.md describes protocol and files. rust/src/bin/queues is the same in
// Rust.
#pragma once

#include "../protocol.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace queues {

/// Prints one line on standard error and ends the program.
[[noreturn]] inline void die(const std::string& message) {
  std::fprintf(stderr, "queues: %s\n", message.c_str());
  _exit(1);
}

/// Uses `ns` of this thread's CPU time, however often it is preempted. Returns the time that it
/// took.
inline int64_t burn(int64_t ns) {
  int64_t from = peer_clock(CLOCK_THREAD_CPUTIME_ID), now;
  do now = peer_clock(CLOCK_THREAD_CPUTIME_ID);
  while (now - from < ns);
  return now - from;
}

/// The settings of the command line.
class Settings {
 public:
  explicit Settings(const std::vector<std::string>& words) {
    for (auto& word : words) {
      auto split = word.find('=');
      if (split != std::string::npos) values_[word.substr(0, split)] = word.substr(split + 1);
    }
  }
  Settings(int argc, char** argv) : Settings(std::vector<std::string>(argv + 1, argv + argc)) {}

  std::string text(const std::string& name) const {
    auto found = values_.find(name);
    if (found == values_.end()) die("the setting " + name + "= is missing");
    return found->second;
  }
  size_t number(const std::string& name) const {
    std::string value = text(name);
    char* end = nullptr;
    errno = 0;
    auto number = std::strtoul(value.c_str(), &end, 10);
    if (value.empty() || *end || errno) die(name + "=" + value + " is not a number");
    return number;
  }
  std::vector<std::string> words() const {
    std::vector<std::string> all;
    for (auto& [name, value] : values_) all.push_back(name + "=" + value);
    return all;
  }

 private:
  std::map<std::string, std::string> values_;
};

struct Stream {
  std::vector<int64_t> due_ns, processing_ns;

  Stream(const Settings& settings, size_t k) {
    std::string path = settings.text("arrivals") + std::to_string(k) + ".csv";
    std::ifstream file(path);
    if (!file) die("cannot read " + path);
    long long due, processing;
    for (char comma; file >> due >> comma >> processing;) {
      due_ns.push_back(due);
      processing_ns.push_back(processing);
    }
    if (due_ns.empty() || !file.eof()) die(path + " is not a list of arrivals");
  }
  size_t size() const { return due_ns.size(); }
};

/// The beginning of every message.
struct Head {
  uint64_t sequence;
  int64_t sent_ns;
};

/// This program's side of the protocol. A thread reads the commands, so that `stop` can end a run
/// early. Several parts of a program can share one: it reports `ready` and `done` once all parts
/// have.
class Control {
 public:
  explicit Control(size_t parts) : unready_(parts), undone_(parts) {
    std::thread([this] { listen(); }).detach();
  }
  Control(const Control&) = delete;

  void ready() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (unready_ > 0 && --unready_ == 0) protocol_ready();
  }
  /// Records that a part has sent or processed its messages.
  void done(size_t messages) {
    std::lock_guard<std::mutex> lock(mutex_);
    messages_ += messages;
    if (undone_ > 0 && --undone_ == 0) protocol_done(static_cast<long>(messages_), &began_);
  }
  /// Waits for the begin of the arrivals and returns it.
  int64_t wait_start() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return start_ns_ != 0 || stopped_; });
    return start_ns_;
  }
  bool stopped() const { return stopped_; }
  void wait_stop() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return stopped_.load(); });
  }

 private:
  void listen() {
    protocol_command command;
    do {
      protocol_read(&command);
      std::lock_guard<std::mutex> lock(mutex_);
      if (command.kind == PROTOCOL_START) {
        start_ns_ = command.start_ns;
        began_ = peer_used();
      } else {
        stopped_ = true;
      }
      changed_.notify_all();
    } while (command.kind == PROTOCOL_START);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  size_t unready_, undone_, messages_ = 0;
  peer_usage began_ = {0, 0, 0};
  int64_t start_ns_ = 0;
  std::atomic<bool> stopped_{false};
};

/// A log whose memory is allocated and touched before the run, so that the run has no page faults.
template <typename Entry>
class Log {
 public:
  explicit Log(size_t room) : entries_(room) {}
  void add(const Entry& entry) {
    size_t at = count_.load(std::memory_order_relaxed);
    if (at < entries_.size()) entries_[at] = entry;
    // More entries than messages are not stored, but the experiment sees the count.
    count_.store(std::min(at + 1, entries_.size()), std::memory_order_release);
  }
  size_t size() const { return count_.load(std::memory_order_acquire); }
  const Entry& operator[](size_t i) const { return entries_[i]; }

 private:
  std::vector<Entry> entries_;
  std::atomic<size_t> count_{0};
};

inline FILE* create(const std::string& path) {
  FILE* file = std::fopen(path.c_str(), "w");
  if (!file) die("cannot write " + path + ": " + std::strerror(errno));
  return file;
}

inline void close(FILE* file, const std::string& path) {
  if (std::fclose(file) != 0) die("cannot write " + path + ": " + std::strerror(errno));
}

/// The sending side of a stream.
class Sender {
 public:
  Sender(const Settings& settings, size_t k) : stream_(settings, k) {}

  /// Calls `send(head)` when a message is due. A late message is sent at once.
  template <typename Send>
  void run(Control& control, Send send) {
    int64_t start = control.wait_start();
    size_t i = 0;
    for (; i < stream_.size() && !control.stopped(); i++) {
      peer_sleep_until(start + stream_.due_ns[i]);
      send(Head{i, peer_now()});
    }
    control.done(i);
  }

 private:
  Stream stream_;
};

/// The processing side of a stream.
class Receiver {
 public:
  Receiver(const Settings& settings, size_t k)
      : stream_(settings, k),
        entries_(2 * stream_.size()),
        path_(settings.text("log") + std::to_string(k) + ".received.csv") {}

  void process(const uint8_t* payload, size_t bytes, Control& control) {
    int64_t in = peer_now();
    Head head;
    if (bytes < sizeof head) die("a message is too short");
    std::memcpy(&head, payload, sizeof head);
    if (head.sequence >= stream_.size()) die("a message has the number of no message in the stream");
    burned_ns_.store(burned_ns_.load(std::memory_order_relaxed) +
                         burn(stream_.processing_ns[head.sequence]),
                     std::memory_order_relaxed);
    entries_.add({head.sequence, head.sent_ns, in, peer_now()});
    if (head.sequence + 1 == stream_.size()) control.done(entries_.size());
  }
  void write() const {
    FILE* file = create(path_);
    for (size_t i = 0; i < entries_.size(); i++) {
      const Entry& e = entries_[i];
      std::fprintf(file, "%llu,%lld,%lld,%lld\n", static_cast<unsigned long long>(e.sequence),
                   static_cast<long long>(e.sent_ns), static_cast<long long>(e.in_ns),
                   static_cast<long long>(e.out_ns));
    }
    std::fprintf(file, "# burned_ns=%lld\n",
                 static_cast<long long>(burned_ns_.load(std::memory_order_relaxed)));
    close(file, path_);
  }

 private:
  struct Entry {
    uint64_t sequence;
    int64_t sent_ns, in_ns, out_ns;
  };
  Stream stream_;
  Log<Entry> entries_;
  std::string path_;
  std::atomic<int64_t> burned_ns_{0};
};

}  // namespace queues

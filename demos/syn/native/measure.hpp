// Clocks, burning CPU time, and what the application measures of itself.
#pragma once

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "table.hpp"

namespace syn {

inline int64_t now_ns(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * 1'000'000'000LL + t.tv_nsec;
}
inline int64_t monotonic_ns() { return now_ns(CLOCK_MONOTONIC); }
inline int64_t cpu_ns() { return now_ns(CLOCK_THREAD_CPUTIME_ID); }

/// Computes until the thread's CPU clock shows this value.
inline void burn_until(int64_t target_cpu_ns) {
  while (cpu_ns() < target_cpu_ns) {
  }
}

/// Where a chain started (CLOCK_MONOTONIC ns) and the callbacks it went through so far.
struct Stamp {
  int64_t start_ns;
  std::string path;
};
using Stamps = std::vector<Stamp>;

inline std::string format(const Stamps& stamps) {
  std::string text;
  for (auto& stamp : stamps)
    text += (text.empty() ? "" : "\n") + std::to_string(stamp.start_ns) + " " + stamp.path;
  return text;
}
inline Stamps parse(const std::string& text) {
  Stamps stamps;
  std::istringstream lines(text);
  for (Stamp stamp; lines >> stamp.start_ns >> stamp.path;) stamps.push_back(stamp);
  return stamps;
}
inline Stamps extended(Stamps stamps, const std::string& hop) {
  for (auto& stamp : stamps) stamp.path += ">" + hop;
  return stamps;
}

/// Executions and chain latencies. Each thread has a part of its own, so that callbacks do not wait
/// for one another to note what they took.
class Measurements {
 public:
  void executed(const std::string& key, int64_t cpu, int64_t elapsed) {
    Part& part = own();
    int64_t end = monotonic_ns();
    last_ns = end;
    part.executions[key].push_back({end - elapsed, cpu});
    part.responses[key].push_back({end - elapsed, elapsed});
  }
  /// When the last execution ended.
  std::atomic<int64_t> last_ns{0};

  void completed(const std::string& path, int64_t latency) {
    own().chains[path].push_back({monotonic_ns(), latency});
  }
  /// Writes everything for the launcher, whole or not at all; no callback may run any more.
  void write(const std::string& path) {
    std::lock_guard<std::mutex> lock(mutex_);
    Part all;
    for (auto& part : parts_) {
      add(all.executions, part->executions);
      add(all.responses, part->responses);
      add(all.chains, part->chains);
    }
    std::string temporary = path + ".tmp";
    FILE* file = std::fopen(temporary.c_str(), "w");
    if (!file) die("cannot write " + temporary);
    std::fputs("{", file);
    section(file, "executions", all.executions, ",");
    section(file, "responses", all.responses, ",");
    section(file, "chains", all.chains, "}\n");
    if (std::fclose(file) != 0 || std::rename(temporary.c_str(), path.c_str()) != 0)
      die("cannot write " + path);
  }

 private:
  /// A value and the time that it belongs to, by which the values of all threads are sorted.
  using Timed = std::pair<int64_t, int64_t>;
  using Values = std::map<std::string, std::vector<Timed>>;
  struct Part {
    Values executions, responses, chains;
  };

  Part& own() {
    thread_local Part* part = nullptr;
    if (!part) {
      std::lock_guard<std::mutex> lock(mutex_);
      parts_.push_back(std::make_unique<Part>());
      part = parts_.back().get();
    }
    return *part;
  }
  static void add(Values& to, const Values& from) {
    for (auto& [key, list] : from) {
      auto& all = to[key];
      all.insert(all.end(), list.begin(), list.end());
      std::sort(all.begin(), all.end());
    }
  }

  static void section(FILE* file, const char* name, const Values& values, const char* end) {
    std::fprintf(file, "\"%s\":{", name);
    const char* comma = "";
    for (auto& [key, list] : values) {
      std::fprintf(file, "%s\"%s\":[", comma, key.c_str());
      comma = ",";
      const char* inner = "";
      for (auto& [time, value] : list) {
        (void)time;
        std::fprintf(file, "%s%lld", inner, static_cast<long long>(value));
        inner = ",";
      }
      std::fputs("]", file);
    }
    std::fprintf(file, "}%s", end);
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<Part>> parts_;
};

/// One execution of a callback: notes its start, then burns the time it is given.
class Execution {
 public:
  explicit Execution(const Callback& cb)
      : start_ns(monotonic_ns()), cpu_(cpu_ns()), name_(cb.name) {
    burn_until(cpu_ + cb.exec_ns);
  }
  /// The last that a callback does. `completes`: chains that end with it.
  void end(Measurements& measured, const std::string& caller = "", const Stamps& completes = {}) {
    int64_t used = cpu_ns() - cpu_;
    measured.executed(caller.empty() ? name_ : name_ + "@" + caller, used,
                      monotonic_ns() - start_ns);
    if (completes.empty()) return;
    int64_t end_ns = monotonic_ns();
    for (auto& stamp : completes) measured.completed(stamp.path, end_ns - stamp.start_ns);
  }

  const int64_t start_ns;

 private:
  int64_t cpu_;
  std::string name_;
};

}  // namespace syn

// Clocks, burning CPU time, and what the application measures of itself.
#pragma once

#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <map>
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

/// Executions and chain latencies.
class Measurements {
 public:
  void executed(const std::string& key, int64_t cpu, int64_t elapsed) {
    std::lock_guard<std::mutex> lock(mutex_);
    last_ns = monotonic_ns();
    executions_[key].push_back(cpu);
    responses_[key].push_back(elapsed);
  }
  /// When the last execution ended.
  std::atomic<int64_t> last_ns{0};

  void completed(const std::string& path, int64_t latency) {
    std::lock_guard<std::mutex> lock(mutex_);
    chains_[path].push_back(latency);
  }
  /// Writes everything for the launcher, whole or not at all.
  void write(const std::string& path) {
    std::lock_guard<std::mutex> lock(mutex_);
    std::string temporary = path + ".tmp";
    FILE* file = std::fopen(temporary.c_str(), "w");
    if (!file) die("cannot write " + temporary);
    std::fputs("{", file);
    section(file, "executions", executions_, ",");
    section(file, "responses", responses_, ",");
    section(file, "chains", chains_, "}\n");
    if (std::fclose(file) != 0 || std::rename(temporary.c_str(), path.c_str()) != 0)
      die("cannot write " + path);
  }

 private:
  using Values = std::map<std::string, std::vector<int64_t>>;

  static void section(FILE* file, const char* name, const Values& values, const char* end) {
    std::fprintf(file, "\"%s\":{", name);
    const char* comma = "";
    for (auto& [key, list] : values) {
      std::fprintf(file, "%s\"%s\":[", comma, key.c_str());
      comma = ",";
      const char* inner = "";
      for (auto value : list) {
        std::fprintf(file, "%s%lld", inner, static_cast<long long>(value));
        inner = ",";
      }
      std::fputs("]", file);
    }
    std::fprintf(file, "}%s", end);
  }

  std::mutex mutex_;
  Values executions_, responses_, chains_;
};

/// One execution of a callback: notes its start, then burns the time it is given.
class Execution {
 public:
  explicit Execution(const Callback& cb)
      : name_(cb.name), cpu_(cpu_ns()), start_ns(monotonic_ns()) {
    burn_until(cpu_ + cb.exec_ns);
  }
  void end(Measurements& measured, const std::string& caller = "") {
    int64_t used = cpu_ns() - cpu_;
    measured.executed(caller.empty() ? name_ : name_ + "@" + caller, used,
                      monotonic_ns() - start_ns);
  }

 private:
  std::string name_;
  int64_t cpu_;

 public:
  const int64_t start_ns;
};

}  // namespace syn

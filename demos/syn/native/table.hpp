// The wiring table as the launcher hands it over: one callback a line, fields between blanks.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace syn {

/// Ends the program with one line.
[[noreturn]] inline void die(const std::string& message) {
  std::fprintf(stderr, "syn: %s\n", message.c_str());
  std::exit(1);
}

inline std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

/// A callback: its node, what triggers it and what it does at its end.
struct Callback {
  std::string name, node, kind, input;
  std::vector<std::string> publishes;
  std::string calls, joins;
  int64_t period_ns = 0, exec_ns = 0;
};

/// All callbacks of the application, also those of other processes.
struct Table {
  std::vector<Callback> callbacks;

  static Table read(const std::string& path) {
    std::ifstream file(path);
    if (!file) die("cannot read the wiring table " + path + ": start this program with syn.py");
    Table table;
    for (std::string line; std::getline(file, line);) {
      std::istringstream fields(line);
      Callback cb;
      std::string publishes;
      if (!(fields >> cb.name >> cb.node >> cb.kind >> cb.input >> publishes >> cb.calls >>
            cb.joins >> cb.period_ns >> cb.exec_ns)) {
        die("malformed line in " + path + ": " + line);
      }
      auto absent = [](std::string& field) {
        if (field == "-") field.clear();
      };
      absent(cb.input), absent(publishes), absent(cb.calls), absent(cb.joins);
      cb.publishes = split(publishes, ',');
      table.callbacks.push_back(cb);
    }
    return table;
  }

  const Callback* named(const std::string& name) const {
    for (auto& cb : callbacks)
      if (cb.name == name) return &cb;
    return nullptr;
  }
  const Callback* service(const std::string& input) const {
    for (auto& cb : callbacks)
      if (cb.kind == "service" && cb.input == input) return &cb;
    return nullptr;
  }
  /// Nodes with a client of a service, in the table's order.
  std::vector<std::string> callers(const std::string& service) const {
    std::vector<std::string> nodes;
    for (auto& cb : callbacks)
      if (cb.kind == "client" && cb.input == service) nodes.push_back(cb.node);
    return nodes;
  }
  size_t subscribers(const std::string& topic) const {
    size_t count = 0;
    for (auto& cb : callbacks) count += cb.kind == "subscription" && cb.input == topic;
    return count;
  }
  size_t publishers(const std::string& topic) const {
    std::set<std::string> nodes;
    for (auto& cb : callbacks)
      for (auto& published : cb.publishes)
        if (published == topic) nodes.insert(cb.node);
    return nodes.size();
  }
  std::vector<const Callback*> members(const std::string& sync) const {
    std::vector<const Callback*> found;
    for (auto& cb : callbacks)
      if (cb.joins == sync) found.push_back(&cb);
    return found;
  }
  /// Whether nothing follows on a callback.
  bool sink(const Callback& cb) const {
    if (!cb.joins.empty() || (!cb.calls.empty() && service(named(cb.calls)->input))) return false;
    for (auto& topic : cb.publishes)
      if (subscribers(topic) > 0) return false;
    return true;
  }
};

}  // namespace syn

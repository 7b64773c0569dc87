// Streams, stamps and runs of `link` for peers in C++. ../rust/src/bin/link/ is the same in Rust.
//
// A peer implements two functions: `sender` and `receiver`, which connect one stream.
#pragma once

#include "../protocol.h"

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace link_peer {

// A stream of messages: PRIORITY,BYTES,PERIOD_NS,COUNT,OFFSET_NS.
struct Stream {
  unsigned id = 0;
  long priority = 0, bytes = 0, period_ns = 0, count = 0, offset_ns = 0;
};

struct Settings {
  protocol_words words;
  bool sends = false;
  std::vector<Stream> streams;
  // The rate of the link in bits/s. 0 means no limit.
  long rate = 0;
  std::string text(const char* name) const { return protocol_text(&words, name); }
  bool has(const char* name) const {
    const std::string begin = std::string(name) + "=";
    for (int i = 0; i < words.count; i++)
      if (begin.compare(0, begin.size(), words.word[i], 0, begin.size()) == 0) return true;
    return false;
  }
  // Returns a topic name for a stream that is unique to this run.
  std::string topic(const Stream& stream) const { return "link" + text("port") + "_" + std::to_string(stream.id); }
};

using Fill = std::function<void(uint8_t*)>;
using Take = std::function<void(const uint8_t*, size_t)>;

class Sender {
 public:
  virtual ~Sender() = default;
  virtual bool matched() = 0;
  // Sends a message, which `fill` writes into the send buffer. Returns once the middleware has
  // taken it.
  virtual void send(const Fill& fill) = 0;
};

class Receiver {
 public:
  virtual ~Receiver() = default;
  virtual bool matched() = 0;
  // Waits for the next message.
  virtual void receive(const Take& take) = 0;
};

// Each peer defines these two functions.
std::unique_ptr<Sender> sender(const Settings& settings, const Stream& stream);
std::unique_ptr<Receiver> receiver(const Settings& settings, const Stream& stream);

// The unit of 16 bytes that a message repeats to show its stream and number. The second unit holds
// the times.
struct Unit {
  uint32_t magic, stream;
  uint64_t number;
};
constexpr uint32_t kMagic = 0x6f6e6274;
constexpr int64_t kConnectNs = 6000000000;

inline void fill(uint8_t* message, const Stream& stream, uint64_t number, int64_t intended_ns) {
  const Unit unit = {kMagic, stream.id, number};
  for (long at = 0; at < stream.bytes; at += sizeof unit) memcpy(message + at, &unit, sizeof unit);
  const int64_t times[2] = {intended_ns, peer_now()};
  memcpy(message + sizeof unit, times, sizeof times);
}

struct Sample {
  unsigned stream;
  uint64_t number;
  int64_t intended_ns, sent_ns, received_ns, finished_ns;
};

inline Sample read(const uint8_t* message, size_t bytes, const Stream& stream, int64_t received_ns) {
  Unit unit, last;
  int64_t times[2];
  if (bytes != static_cast<size_t>(stream.bytes)) peer_die("a message has %zu bytes", bytes);
  memcpy(&unit, message, sizeof unit);
  memcpy(&last, message + bytes - sizeof last, sizeof last);
  memcpy(times, message + sizeof unit, sizeof times);
  if (unit.magic != kMagic || unit.stream != stream.id || memcmp(&unit, &last, sizeof unit) != 0)
    peer_die("a message is incomplete");
  return {unit.stream, unit.number, times[0], times[1], received_ns, peer_now()};
}

inline Settings settings_of(int argc, char** argv) {
  Settings settings;
  settings.words = protocol_arguments(argc, argv);
  settings.sends = settings.text("side") == "send";
  settings.rate = atol(settings.text("rate").c_str());
  if (settings.has("network")) peer_die("this peer does not support network=");
  std::string ids = settings.text("streams");
  for (size_t at = 0; at != std::string::npos && at < ids.size();) {
    Stream s;
    s.id = static_cast<unsigned>(atoi(ids.c_str() + at));
    std::string text = settings.text(("s" + std::to_string(s.id)).c_str());
    if (sscanf(text.c_str(), "%ld,%ld,%ld,%ld,%ld", &s.priority, &s.bytes, &s.period_ns, &s.count, &s.offset_ns) != 5)
      peer_die("s%u=%s is not a stream: write PRIORITY,BYTES,PERIOD_NS,COUNT,OFFSET_NS", s.id, text.c_str());
    settings.streams.push_back(s);
    at = ids.find(',', at);
    if (at != std::string::npos) at++;
  }
  return settings;
}

using Senders = std::vector<std::unique_ptr<Sender>>;

inline void one(Sender& way, const Stream& stream, uint64_t number, int64_t intended_ns) {
  way.send([&](uint8_t* message) { fill(message, stream, number, intended_ns); });
}

inline void by_time(Sender& way, const Stream& stream, int64_t start_ns, const std::atomic<bool>& stopped) {
  for (long number = 0; stream.count == 0 || number < stream.count; number++) {
    int64_t intended = start_ns + stream.offset_ns + number * stream.period_ns;
    peer_sleep_until(intended);
    if (stopped) return;
    one(way, stream, static_cast<uint64_t>(number), stream.period_ns == 0 ? peer_now() : intended);
  }
}

// Sends in rounds. A round is `turn` messages of each stream, one stream after the other, numbered
// over all streams.
inline void in_turns(Senders& ways, const std::vector<Stream>& streams, int64_t start_ns, long turn) {
  constexpr long kRounds = 9;
  uint64_t number = 0;
  for (long sent = 0; sent < streams[0].count; sent += turn) {
    if (sent % (kRounds * turn) == 0) peer_sleep_until(start_ns + sent / (kRounds * turn) * streams[0].period_ns);
    for (size_t i = 0; i < streams.size(); i++)
      for (long k = 0; k < turn; k++) one(*ways[i], streams[i], number++, peer_now());
  }
}

inline void finish() {
  protocol_written();
  char line[8];
  // Threads of the middleware may still be waiting for the other end.
  while (fgets(line, sizeof line, stdin)) {}
  _exit(0);
}

// Messages sent before the other end is found would be lost.
template <typename Ways>
void await_match(Ways& ways) {
  const int64_t until = peer_now() + kConnectNs;
  for (auto& way : ways)
    while (!way->matched()) {
      if (peer_now() > until) peer_die("the other end was not found");
      peer_sleep_until(peer_now() + 5000000);
    }
}

inline void send_all(const Settings& settings) {
  Senders ways;
  for (const Stream& stream : settings.streams) ways.push_back(sender(settings, stream));
  await_match(ways);
  const int64_t start_ns = protocol_await_start();
  const peer_usage began = peer_used();
  static std::atomic<bool> stopped{false};
  std::vector<std::thread> finite;
  long messages = 0;
  if (settings.has("turn")) {
    in_turns(ways, settings.streams, start_ns, atol(settings.text("turn").c_str()));
  } else {
    for (size_t i = 0; i < ways.size(); i++) {
      const Stream& stream = settings.streams[i];
      messages += stream.count;
      std::thread thread(by_time, std::ref(*ways[i]), std::cref(stream), start_ns, std::cref(stopped));
      if (stream.count == 0) thread.detach();
      else finite.push_back(std::move(thread));
    }
  }
  for (auto& thread : finite) thread.join();
  protocol_done(messages, &began);
  protocol_await(PROTOCOL_STOP);
  stopped = true;
  finish();
}

inline void receive_all(const Settings& settings) {
  static std::mutex lock;
  static std::vector<Sample> samples;
  samples.reserve(1 << 16);
  std::vector<std::unique_ptr<Receiver>> ways;
  for (const Stream& stream : settings.streams) ways.push_back(receiver(settings, stream));
  std::vector<std::thread> finite;
  long messages = 0;
  for (size_t i = 0; i < ways.size(); i++) {
    const Stream& stream = settings.streams[i];
    Receiver& way = *ways[i];
    messages += stream.count;
    std::thread thread([&way, &stream] {
      for (long next = 0; stream.count == 0 || next < stream.count; next++)
        way.receive([&](const uint8_t* message, size_t bytes) {
          const int64_t received_ns = peer_now();
          const Sample sample = read(message, bytes, stream, received_ns);
          std::lock_guard<std::mutex> guard(lock);
          samples.push_back(sample);
        });
    });
    if (stream.count == 0) thread.detach();
    else finite.push_back(std::move(thread));
  }
  await_match(ways);
  protocol_await_start();
  const peer_usage began = peer_used();
  for (auto& thread : finite) thread.join();
  protocol_done(messages, &began);
  protocol_await(PROTOCOL_STOP);
  FILE* out = fopen(settings.text("file").c_str(), "w");
  if (!out) peer_die("%s: %s", settings.text("file").c_str(), strerror(errno));
  {
    std::lock_guard<std::mutex> guard(lock);
    for (const Sample& s : samples)
      fprintf(out, "%u,%llu,%lld,%lld,%lld,%lld\n", s.stream, static_cast<unsigned long long>(s.number),
              static_cast<long long>(s.intended_ns), static_cast<long long>(s.sent_ns),
              static_cast<long long>(s.received_ns), static_cast<long long>(s.finished_ns));
  }
  if (fclose(out) != 0) peer_die("%s: %s", settings.text("file").c_str(), strerror(errno));
  finish();
}

inline int main_of(int argc, char** argv) {
  // Threads refer to the settings until the process ends.
  static Settings settings;
  settings = settings_of(argc, argv);
  if (settings.sends) send_all(settings);
  else receive_all(settings);
  return 0;
}

}  // namespace link_peer

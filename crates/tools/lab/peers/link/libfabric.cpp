// libfabric in `link`: one connected endpoint (FI_EP_MSG, provider tcp) per stream. It has no
// priorities.
#include "link.hpp"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

namespace link_peer {
namespace {

// The pause between two tries to connect, because the receiver may not be listening yet.
constexpr int64_t kAgainNs = 5000000;
// The number of messages for which the receiver has buffers.
constexpr size_t kPosted = 4;

template <typename Number>
Number checked(Number result, const char* what) {
  if (result < 0) peer_die("libfabric: %s: %s", what, fi_strerror(static_cast<int>(-result)));
  return result;
}

// One end of a stream. It lives until the process ends.
struct End {
  fi_info* info = nullptr;
  fid_fabric* fabric = nullptr;
  fid_domain* domain = nullptr;
  fid_eq* events = nullptr;
  fid_cq* completions = nullptr;
  fid_ep* endpoint = nullptr;
};

fi_info* found(const Settings& settings, const Stream& stream, uint64_t flags) {
  fi_info* hints = fi_allocinfo();
  hints->ep_attr->type = FI_EP_MSG;
  hints->caps = FI_MSG;
  hints->addr_format = FI_SOCKADDR_IN;
  hints->fabric_attr->prov_name = strdup("tcp");
  const std::string port = std::to_string(atol(settings.text("port").c_str()) + stream.id);
  fi_info* info = nullptr;
  checked(fi_getinfo(FI_VERSION(1, 11), settings.text("host").c_str(), port.c_str(), flags, hints, &info), "provider tcp");
  fi_freeinfo(hints);
  return info;
}

// Opens the fabric and the event queue of its connections.
void open_fabric(End& end) {
  checked(fi_fabric(end.info->fabric_attr, &end.fabric, nullptr), "fabric");
  fi_eq_attr events = {};
  events.wait_obj = FI_WAIT_UNSPEC;
  checked(fi_eq_open(end.fabric, &events, &end.events, nullptr), "event queue");
}

// Opens an endpoint of `info`, ready to connect or to accept.
void open_endpoint(End& end, fi_info* info) {
  if (!end.domain) {
    checked(fi_domain(end.fabric, info, &end.domain, nullptr), "domain");
    fi_cq_attr completions = {};
    completions.format = FI_CQ_FORMAT_MSG;
    completions.wait_obj = FI_WAIT_UNSPEC;
    completions.size = 2 * kPosted;
    checked(fi_cq_open(end.domain, &completions, &end.completions, nullptr), "completion queue");
  }
  checked(fi_endpoint(end.domain, info, &end.endpoint, nullptr), "endpoint");
  checked(fi_ep_bind(end.endpoint, &end.events->fid, 0), "binding events");
  checked(fi_ep_bind(end.endpoint, &end.completions->fid, FI_TRANSMIT | FI_RECV), "binding completions");
  checked(fi_enable(end.endpoint), "enabling");
}

// Waits until the connection is established. Returns false if it was refused. Ends the program at
// `until_ns`.
bool connected(End& end, int64_t until_ns) {
  for (;;) {
    uint32_t event = 0;
    fi_eq_cm_entry entry = {};
    const ssize_t got = fi_eq_sread(end.events, &event, &entry, sizeof entry, 100, 0);
    if (got >= 0) return event == FI_CONNECTED;
    if (got == -FI_EAVAIL) {
      fi_eq_err_entry why = {};
      fi_eq_readerr(end.events, &why, 0);
      return false;
    }
    if (peer_now() > until_ns) peer_die("the other end was not found");
  }
}

// Waits for the next complete message and returns its length.
size_t completed(End& end) {
  for (;;) {
    fi_cq_msg_entry entry = {};
    const ssize_t got = fi_cq_sread(end.completions, &entry, 1, nullptr, -1);
    if (got == 1) return entry.len;
    if (got == -FI_EAVAIL) {
      // The other end has closed the connection: the run is over.
      for (;;) pause();
    }
    if (got != -FI_EAGAIN && got != -FI_EINTR) checked(got, "waiting");
  }
}

class Out : public Sender {
 public:
  Out(const Settings& settings, const Stream& stream) : buffer_(static_cast<size_t>(stream.bytes)) {
    end_.info = found(settings, stream, 0);
    open_fabric(end_);
    const int64_t until_ns = peer_now() + kConnectNs;
    for (;;) {
      open_endpoint(end_, end_.info);
      if (fi_connect(end_.endpoint, end_.info->dest_addr, nullptr, 0) == 0 && connected(end_, until_ns)) return;
      fi_close(&end_.endpoint->fid);
      if (peer_now() > until_ns) peer_die("the other end was not found");
      peer_sleep_until(peer_now() + kAgainNs);
    }
  }
  bool matched() override { return true; }
  void send(const Fill& fill) override {
    fill(buffer_.data());
    ssize_t sent;
    while ((sent = fi_send(end_.endpoint, buffer_.data(), buffer_.size(), nullptr, FI_ADDR_UNSPEC, nullptr)) == -FI_EAGAIN) {}
    checked(sent, "sending");
    completed(end_);
  }

 private:
  End end_;
  std::vector<uint8_t> buffer_;
};

class In : public Receiver {
 public:
  In(const Settings& settings, const Stream& stream) : buffers_(kPosted, std::vector<uint8_t>(static_cast<size_t>(stream.bytes))) {
    end_.info = found(settings, stream, FI_SOURCE);
    open_fabric(end_);
    fid_pep* passive = nullptr;
    checked(fi_passive_ep(end_.fabric, end_.info, &passive, nullptr), "passive endpoint");
    checked(fi_pep_bind(passive, &end_.events->fid, 0), "binding the passive endpoint");
    checked(fi_listen(passive), "listening");
    uint32_t event = 0;
    fi_eq_cm_entry entry = {};
    const ssize_t got = fi_eq_sread(end_.events, &event, &entry, sizeof entry, kConnectNs / 1000000, 0);
    if (got < 0 || event != FI_CONNREQ) peer_die("the other end was not found");
    open_endpoint(end_, entry.info);
    // The buffers must be posted before the first message can arrive.
    for (auto& buffer : buffers_) post(buffer);
    checked(fi_accept(end_.endpoint, nullptr, 0), "accepting");
    if (!connected(end_, peer_now() + kConnectNs)) peer_die("libfabric: the connection was refused");
    fi_freeinfo(entry.info);
  }
  bool matched() override { return true; }
  void receive(const Take& take) override {
    // Messages of a connection fill the buffers in the order in which they were posted.
    const size_t bytes = completed(end_);
    auto& buffer = buffers_[next_++ % kPosted];
    take(buffer.data(), bytes);
    post(buffer);
  }

 private:
  void post(std::vector<uint8_t>& buffer) {
    checked(fi_recv(end_.endpoint, buffer.data(), buffer.size(), nullptr, FI_ADDR_UNSPEC, nullptr), "posting");
  }
  End end_;
  std::vector<std::vector<uint8_t>> buffers_;
  size_t next_ = 0;
};

}  // namespace

std::unique_ptr<Sender> sender(const Settings& settings, const Stream& stream) {
  return std::make_unique<Out>(settings, stream);
}

std::unique_ptr<Receiver> receiver(const Settings& settings, const Stream& stream) {
  return std::make_unique<In>(settings, stream);
}

}  // namespace link_peer

int main(int argc, char** argv) { return link_peer::main_of(argc, argv); }

// Cyclone DDS in `link`: reliable, KEEP_ALL, over UDP.
//
// It has no priorities on the network: TRANSPORT_PRIORITY needs network channels, which its
// packages do not include.
#include "link.hpp"

#include <dds/dds.h>
#include "message.h"

namespace link_peer {
namespace {

dds_entity_t checked(dds_entity_t entity, const char* what) {
  if (entity < 0) peer_die("cyclonedds: %s: %s", what, dds_strretcode(-entity));
  return entity;
}

dds_entity_t participant() {
  static dds_entity_t one = checked(dds_create_participant(DDS_DOMAIN_DEFAULT, nullptr, nullptr), "participant");
  return one;
}

dds_entity_t endpoint(const Settings& settings, const Stream& stream, bool writes) {
  dds_qos_t* qos = dds_create_qos();
  dds_qset_reliability(qos, DDS_RELIABILITY_RELIABLE, DDS_SECS(30));
  dds_qset_history(qos, DDS_HISTORY_KEEP_ALL, 0);
  // The number of samples under way, like the credits of onbeat's links.
  dds_qset_resource_limits(qos, 4, DDS_LENGTH_UNLIMITED, DDS_LENGTH_UNLIMITED);
  const std::string name = settings.topic(stream);
  dds_qset_transport_priority(qos, static_cast<int32_t>(stream.priority));
  dds_entity_t topic = checked(dds_create_topic(participant(), &Message_desc, name.c_str(), nullptr, nullptr), "topic");
  dds_entity_t made = writes ? dds_create_writer(participant(), topic, qos, nullptr)
                             : dds_create_reader(participant(), topic, qos, nullptr);
  dds_delete_qos(qos);
  return checked(made, writes ? "writer" : "reader");
}

class Writer : public Sender {
 public:
  Writer(const Settings& settings, const Stream& stream)
      : writer_(endpoint(settings, stream, true)), buffer_(static_cast<size_t>(stream.bytes)) {}
  bool matched() override {
    dds_publication_matched_status_t status;
    checked(dds_get_publication_matched_status(writer_, &status), "matching");
    return status.current_count > 0;
  }
  void send(const Fill& fill) override {
    fill(buffer_.data());
    Message message = {};
    message.content._maximum = message.content._length = static_cast<uint32_t>(buffer_.size());
    message.content._buffer = buffer_.data();
    checked(dds_write(writer_, &message), "writing");
  }

 private:
  dds_entity_t writer_;
  std::vector<uint8_t> buffer_;
};

class Reader : public Receiver {
 public:
  Reader(const Settings& settings, const Stream& stream) : reader_(endpoint(settings, stream, false)) {
    waitset_ = checked(dds_create_waitset(participant()), "waitset");
    dds_entity_t condition = checked(dds_create_readcondition(reader_, DDS_ANY_STATE), "read condition");
    checked(dds_waitset_attach(waitset_, condition, 0), "attaching");
  }
  bool matched() override {
    dds_subscription_matched_status_t status;
    checked(dds_get_subscription_matched_status(reader_, &status), "matching");
    return status.current_count > 0;
  }
  void receive(const Take& take) override {
    for (;;) {
      void* loan = nullptr;
      dds_sample_info_t info;
      int count = checked(dds_take(reader_, &loan, &info, 1, 1), "taking");
      if (count == 0) {
        checked(dds_waitset_wait(waitset_, nullptr, 0, DDS_INFINITY), "waiting");
        continue;
      }
      bool valid = info.valid_data;
      if (valid) {
        const auto* message = static_cast<const Message*>(loan);
        take(message->content._buffer, message->content._length);
      }
      checked(dds_return_loan(reader_, &loan, count), "returning the loan");
      if (valid) return;
    }
  }

 private:
  dds_entity_t reader_, waitset_;
};

}  // namespace

std::unique_ptr<Sender> sender(const Settings& settings, const Stream& stream) {
  return std::make_unique<Writer>(settings, stream);
}

std::unique_ptr<Receiver> receiver(const Settings& settings, const Stream& stream) {
  return std::make_unique<Reader>(settings, stream);
}

}  // namespace link_peer

int main(int argc, char** argv) { return link_peer::main_of(argc, argv); }

// Fast DDS in `link`: reliable, KEEP_ALL, over UDP only, with a flow controller that sends writers
// of higher priority first.
#include "link.hpp"

#include <fastdds/dds/core/LoanableSequence.hpp>
#include <fastdds/dds/domain/DomainParticipant.hpp>
#include <fastdds/dds/domain/DomainParticipantFactory.hpp>
#include <fastdds/dds/publisher/DataWriter.hpp>
#include <fastdds/dds/publisher/Publisher.hpp>
#include <fastdds/dds/subscriber/DataReader.hpp>
#include <fastdds/dds/subscriber/SampleInfo.hpp>
#include <fastdds/dds/subscriber/Subscriber.hpp>
#include <fastdds/dds/topic/TopicDataType.hpp>
#include <fastdds/dds/topic/TypeSupport.hpp>
#include <fastdds/rtps/flowcontrol/FlowControllerDescriptor.hpp>
#include <fastrtps/utils/IPLocator.h>
#include <fastdds/rtps/transport/UDPv4TransportDescriptor.h>

using namespace eprosima::fastdds::dds;
using eprosima::fastdds::rtps::FlowControllerDescriptor;
using eprosima::fastdds::rtps::FlowControllerSchedulerPolicy;
using eprosima::fastdds::rtps::UDPv4TransportDescriptor;
using eprosima::fastrtps::rtps::InstanceHandle_t;
using eprosima::fastrtps::rtps::SerializedPayload_t;
using eprosima::fastrtps::types::ReturnCode_t;

namespace link_peer {
namespace {

constexpr int kDomain = 88;
constexpr char kController[] = "by_priority";
// The number of samples under way, like the credits of onbeat's links.
constexpr int kSamples = 4;
constexpr int64_t kRetryNs = 50000;
constexpr unsigned kSocketBytes = 4 << 20;

// A fixed number of bytes after a header of four bytes.
class Bytes : public TopicDataType {
 public:
  explicit Bytes(long bytes) : bytes_(static_cast<uint32_t>(bytes)) {
    setName(("Bytes" + std::to_string(bytes)).c_str());
    m_typeSize = bytes_ + kHeader;
    m_isGetKeyDefined = false;
  }
  bool serialize(void* data, SerializedPayload_t* payload) override {
    if (payload->max_size < m_typeSize) return false;
    const uint8_t header[kHeader] = {0, 1, 0, 0};  // CDR, little endian
    payload->encapsulation = CDR_LE;
    memcpy(payload->data, header, kHeader);
    memcpy(payload->data + kHeader, data, bytes_);
    payload->length = m_typeSize;
    return true;
  }
  bool deserialize(SerializedPayload_t* payload, void* data) override {
    if (payload->length < m_typeSize) return false;
    memcpy(data, payload->data + kHeader, bytes_);
    return true;
  }
  std::function<uint32_t()> getSerializedSizeProvider(void*) override {
    uint32_t size = m_typeSize;
    return [size] { return size; };
  }
  void* createData() override { return calloc(1, bytes_); }
  void deleteData(void* data) override { free(data); }
  bool getKey(void*, InstanceHandle_t*, bool) override { return false; }

 private:
  static constexpr uint32_t kHeader = 4;
  uint32_t bytes_;
};

// Allows the bytes of one millisecond at the link's rate in each period. Packet headers use a part
// of them.
FlowControllerDescriptor* controller(long rate) {
  static FlowControllerDescriptor one;
  one.name = kController;
  one.scheduler = FlowControllerSchedulerPolicy::HIGH_PRIORITY;
  one.period_ms = 1;
  one.max_bytes_per_period = static_cast<int32_t>(rate / 8 / 1000 * 94 / 100);
  return &one;
}

DomainParticipant* participant(const Settings& settings) {
  static DomainParticipant* one = [&settings] {
    DomainParticipantQos qos = PARTICIPANT_QOS_DEFAULT;
    auto udp = std::make_shared<UDPv4TransportDescriptor>();
    udp->sendBufferSize = udp->receiveBufferSize = kSocketBytes;
    qos.transport().use_builtin_transports = false;
    qos.transport().user_transports.push_back(udp);
    // More frequent announcements than the default: with few multicasts the other host was
    // sometimes not found.
    auto& builtin = qos.wire_protocol().builtin;
    builtin.discovery_config.initial_announcements.count = 50;
    builtin.discovery_config.initial_announcements.period = eprosima::fastrtps::Duration_t(0, 100000000);
    builtin.discovery_config.leaseDuration_announcementperiod = eprosima::fastrtps::Duration_t(0, 500000000);
    if (settings.sends) {
      eprosima::fastrtps::rtps::Locator_t there;
      eprosima::fastrtps::rtps::IPLocator::setIPv4(there, settings.text("host"));
      builtin.initialPeersList.push_back(there);
    }
    qos.flow_controllers().push_back(std::shared_ptr<FlowControllerDescriptor>(
        controller(settings.rate), [](FlowControllerDescriptor*) {}));
    auto* made = DomainParticipantFactory::get_instance()->create_participant(kDomain, qos);
    if (!made) peer_die("fastdds: no participant");
    return made;
  }();
  return one;
}

Topic* topic_of(const Settings& settings, const Stream& stream) {
  TypeSupport type(new Bytes(stream.bytes));
  if (type.register_type(participant(settings)) != ReturnCode_t::RETCODE_OK) peer_die("fastdds: the type was refused");
  auto* topic = participant(settings)->create_topic(settings.topic(stream), type.get_type_name(), TOPIC_QOS_DEFAULT);
  if (!topic) peer_die("fastdds: no topic");
  return topic;
}

template <typename Qos>
void reliable(Qos& qos) {
  qos.history().kind = KEEP_ALL_HISTORY_QOS;
  qos.reliability().kind = RELIABLE_RELIABILITY_QOS;
  qos.reliability().max_blocking_time = eprosima::fastrtps::Duration_t(30, 0);
  qos.durability().kind = VOLATILE_DURABILITY_QOS;
  qos.resource_limits().max_samples = qos.resource_limits().allocated_samples = kSamples;
  qos.resource_limits().max_instances = 1;
  qos.resource_limits().max_samples_per_instance = kSamples;
  qos.data_sharing().off();
  qos.endpoint().history_memory_policy = eprosima::fastrtps::rtps::DYNAMIC_REUSABLE_MEMORY_MODE;
}

class Writer : public Sender {
 public:
  Writer(const Settings& settings, const Stream& stream) : buffer_(static_cast<size_t>(stream.bytes)) {
    auto* publisher = participant(settings)->create_publisher(PUBLISHER_QOS_DEFAULT);
    DataWriterQos qos = DATAWRITER_QOS_DEFAULT;
    reliable(qos);
    qos.publish_mode().kind = ASYNCHRONOUS_PUBLISH_MODE;
    qos.publish_mode().flow_controller_name = kController;
    // The priorities are -10 (highest) to 10.
    qos.properties().properties().emplace_back("fastdds.sfc.priority", std::to_string(10 - 10 * stream.priority));
    writer_ = publisher ? publisher->create_datawriter(topic_of(settings, stream), qos) : nullptr;
    if (!writer_) peer_die("fastdds: no writer");
  }
  bool matched() override {
    PublicationMatchedStatus status;
    writer_->get_publication_matched_status(status);
    return status.current_count > 0;
  }
  void send(const Fill& fill) override {
    fill(buffer_.data());
    // With all samples under way, Fast DDS refuses the message instead of waiting.
    const int64_t until = peer_now() + kConnectNs;
    while (!writer_->write(buffer_.data())) {
      if (peer_now() > until) peer_die("fastdds: writing failed");
      peer_sleep_until(peer_now() + kRetryNs);
    }
  }

 private:
  std::vector<uint8_t> buffer_;
  DataWriter* writer_;
};

class Reader : public Receiver {
 public:
  Reader(const Settings& settings, const Stream& stream) : buffer_(static_cast<size_t>(stream.bytes)) {
    auto* subscriber = participant(settings)->create_subscriber(SUBSCRIBER_QOS_DEFAULT);
    DataReaderQos qos = DATAREADER_QOS_DEFAULT;
    reliable(qos);
    reader_ = subscriber ? subscriber->create_datareader(topic_of(settings, stream), qos) : nullptr;
    if (!reader_) peer_die("fastdds: no reader");
  }
  bool matched() override {
    SubscriptionMatchedStatus status;
    reader_->get_subscription_matched_status(status);
    return status.current_count > 0;
  }
  void receive(const Take& take) override {
    SampleInfo info;
    for (;;) {
      if (reader_->take_next_sample(buffer_.data(), &info) != ReturnCode_t::RETCODE_OK) {
        reader_->wait_for_unread_message(eprosima::fastrtps::Duration_t(1, 0));
      } else if (info.valid_data) {
        return take(buffer_.data(), buffer_.size());
      }
    }
  }

 private:
  std::vector<uint8_t> buffer_;
  DataReader* reader_;
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

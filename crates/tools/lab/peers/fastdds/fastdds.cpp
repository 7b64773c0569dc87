// Fast DDS with data sharing as a peer: samples are loaned from, and read in, memory that both
// sides map.
#include "../transport.h"

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
#include <fastrtps/types/TypesBase.h>

using namespace eprosima::fastdds::dds;
using eprosima::fastrtps::rtps::InstanceHandle_t;
using eprosima::fastrtps::rtps::SerializedPayload_t;
using eprosima::fastrtps::types::ReturnCode_t;

namespace {

constexpr int kDomain = 88;
constexpr int kDepth = 10;

// A fixed number of bytes. The serialised form is a header of four bytes and the bytes themselves.
class Bytes : public TopicDataType {
 public:
  explicit Bytes(size_t bytes) : bytes_(static_cast<uint32_t>(bytes)) {
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
  bool is_bounded() const override { return true; }
  bool is_plain() const override { return true; }
  bool construct_sample(void*) const override { return true; }

 private:
  static constexpr uint32_t kHeader = 4;
  uint32_t bytes_;
};

DomainParticipant* participant() {
  static DomainParticipant* one = [] {
    DomainParticipantQos qos = PARTICIPANT_QOS_DEFAULT;
    auto* made = DomainParticipantFactory::get_instance()->create_participant(kDomain, qos);
    if (!made) peer_die("fastdds: no participant");
    return made;
  }();
  return one;
}

Topic* topic_of(const char* name, size_t bytes) {
  TypeSupport type(new Bytes(bytes));
  if (type.register_type(participant()) != ReturnCode_t::RETCODE_OK) peer_die("fastdds: the type was refused");
  // If both sides are in one process, they share the topic.
  if (auto* known = dynamic_cast<Topic*>(participant()->lookup_topicdescription(name))) return known;
  auto* topic = participant()->create_topic(name, type.get_type_name(), TOPIC_QOS_DEFAULT);
  if (!topic) peer_die("fastdds: no topic");
  return topic;
}

// Sets what both kinds of endpoint share. Creation fails where data cannot be shared, instead of
// falling back to the network.
template <typename Qos>
void shared(Qos& qos) {
  qos.history().kind = KEEP_LAST_HISTORY_QOS;
  qos.history().depth = kDepth;
  qos.reliability().kind = RELIABLE_RELIABILITY_QOS;
  qos.durability().kind = VOLATILE_DURABILITY_QOS;
  qos.data_sharing().on("");
  qos.endpoint().history_memory_policy = eprosima::fastrtps::rtps::PREALLOCATED_MEMORY_MODE;
}

void* writer(const char* name, size_t bytes) {
  auto* topic = topic_of(name, bytes);
  auto* publisher = participant()->create_publisher(PUBLISHER_QOS_DEFAULT);
  DataWriterQos qos = DATAWRITER_QOS_DEFAULT;
  shared(qos);
  auto* made = publisher ? publisher->create_datawriter(topic, qos) : nullptr;
  if (!made) peer_die("fastdds: no writer with data sharing");
  return made;
}

void* reader(const char* name, size_t bytes) {
  auto* topic = topic_of(name, bytes);
  auto* subscriber = participant()->create_subscriber(SUBSCRIBER_QOS_DEFAULT);
  DataReaderQos qos = DATAREADER_QOS_DEFAULT;
  shared(qos);
  auto* made = subscriber ? subscriber->create_datareader(topic, qos) : nullptr;
  if (!made) peer_die("fastdds: no reader with data sharing");
  return made;
}

bool matched(void* opaque, int readers) {
  PublicationMatchedStatus status;
  static_cast<DataWriter*>(opaque)->get_publication_matched_status(status);
  return status.current_count >= readers;
}

void send_stamp(void* opaque, const stamp* stamp, size_t bytes) {
  auto* writer = static_cast<DataWriter*>(opaque);
  void* sample = nullptr;
  if (writer->loan_sample(sample) != ReturnCode_t::RETCODE_OK) peer_die("fastdds: nothing to loan");
  peer_fill(sample, bytes, stamp);
  if (!writer->write(sample)) peer_die("fastdds: writing failed");
}

bool take(DataReader* reader, size_t bytes, sample* out) {
  LoanableSequence<uint8_t> data;
  SampleInfoSeq infos;
  if (reader->take(data, infos, 1) != ReturnCode_t::RETCODE_OK) return false;
  bool valid = infos.length() > 0 && infos[0].valid_data;
  if (valid) peer_arrived(&data[0], bytes, out);
  reader->return_loan(data, infos);
  return valid;
}

bool receive(void* opaque, int64_t deadline_ns, size_t bytes, sample* out) {
  auto* reader = static_cast<DataReader*>(opaque);
  while (!take(reader, bytes, out)) {
    int64_t left = deadline_ns == 0 ? 0 : deadline_ns - peer_now();
    if (left <= 0) return false;
    eprosima::fastrtps::Duration_t timeout(static_cast<int32_t>(left / 1000000000),
                                           static_cast<uint32_t>(left % 1000000000));
    reader->wait_for_unread_message(timeout);
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  static const peer peer = {"fastdds", writer, reader, matched, send_stamp, receive};
  int code = peer_main(argc, argv, &peer);
  participant()->delete_contained_entities();
  DomainParticipantFactory::get_instance()->delete_participant(participant());
  return code;
}

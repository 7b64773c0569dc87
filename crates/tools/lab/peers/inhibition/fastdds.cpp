// Ping-pong on Fast DDS: a participant per node, and one waitset for all readers of the process.
#include "pingpong.h"

#include <fastdds/dds/core/condition/WaitSet.hpp>
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

#include <vector>

using namespace eprosima::fastdds::dds;
using eprosima::fastrtps::rtps::InstanceHandle_t;
using eprosima::fastrtps::rtps::SerializedPayload_t;
using eprosima::fastrtps::types::ReturnCode_t;

namespace {

constexpr int kDomain = 89;

// A number of eight bytes after the CDR header.
class Number : public TopicDataType {
 public:
  Number() {
    setName("Number");
    m_typeSize = kHeader + sizeof(int64_t);
    m_isGetKeyDefined = false;
  }
  bool serialize(void* data, SerializedPayload_t* payload) override {
    if (payload->max_size < m_typeSize) return false;
    const uint8_t header[kHeader] = {0, 1, 0, 0};  // CDR, little endian
    payload->encapsulation = CDR_LE;
    memcpy(payload->data, header, kHeader);
    memcpy(payload->data + kHeader, data, sizeof(int64_t));
    payload->length = m_typeSize;
    return true;
  }
  bool deserialize(SerializedPayload_t* payload, void* data) override {
    if (payload->length < m_typeSize) return false;
    memcpy(data, payload->data + kHeader, sizeof(int64_t));
    return true;
  }
  std::function<uint32_t()> getSerializedSizeProvider(void*) override {
    uint32_t size = m_typeSize;
    return [size] { return size; };
  }
  void* createData() override { return new int64_t; }
  void deleteData(void* data) override { delete static_cast<int64_t*>(data); }
  bool getKey(void*, InstanceHandle_t*, bool) override { return false; }

 private:
  static constexpr uint32_t kHeader = 4;
};

std::vector<DomainParticipant*> participants;
WaitSet waitset;

void* node(int) {
  auto* made = DomainParticipantFactory::get_instance()->create_participant(kDomain, PARTICIPANT_QOS_DEFAULT);
  if (!made) peer_die("fastdds: no participant");
  TypeSupport type(new Number);
  if (type.register_type(made) != ReturnCode_t::RETCODE_OK) peer_die("fastdds: the type was refused");
  participants.push_back(made);
  return made;
}

Topic* topic_of(DomainParticipant* participant, const char* name) {
  if (auto* known = dynamic_cast<Topic*>(participant->lookup_topicdescription(name))) return known;
  auto* topic = participant->create_topic(name, "Number", TOPIC_QOS_DEFAULT);
  if (!topic) peer_die("fastdds: no topic");
  return topic;
}

// ROS 2's default QoS: reliable, volatile, KEEP_LAST 10, no data sharing, and at most 100 ms in a
// write.
template <typename Qos>
void quality(Qos& qos) {
  qos.history().kind = KEEP_LAST_HISTORY_QOS;
  qos.history().depth = 10;
  qos.reliability().kind = RELIABLE_RELIABILITY_QOS;
  qos.durability().kind = VOLATILE_DURABILITY_QOS;
  qos.data_sharing().off();
}

void* writer(void* opaque, const char* name) {
  auto* participant = static_cast<DomainParticipant*>(opaque);
  auto* publisher = participant->create_publisher(PUBLISHER_QOS_DEFAULT);
  DataWriterQos qos = DATAWRITER_QOS_DEFAULT;
  quality(qos);
  auto* made = publisher ? publisher->create_datawriter(topic_of(participant, name), qos) : nullptr;
  if (!made) peer_die("fastdds: no writer");
  return made;
}

void* reader(void* opaque, const char* name) {
  auto* participant = static_cast<DomainParticipant*>(opaque);
  auto* subscriber = participant->create_subscriber(SUBSCRIBER_QOS_DEFAULT);
  DataReaderQos qos = DATAREADER_QOS_DEFAULT;
  quality(qos);
  auto* made = subscriber ? subscriber->create_datareader(topic_of(participant, name), qos) : nullptr;
  if (!made) peer_die("fastdds: no reader");
  made->get_statuscondition().set_enabled_statuses(StatusMask::data_available());
  waitset.attach_condition(made->get_statuscondition());
  return made;
}

void send(void* opaque, int64_t number) {
  // As in ROS 2, a message that finds no room in time is not sent.
  static_cast<DataWriter*>(opaque)->write(&number);
}

bool take(void* opaque, int64_t* number) {
  SampleInfo info;
  auto* from = static_cast<DataReader*>(opaque);
  while (from->take_next_sample(number, &info) == ReturnCode_t::RETCODE_OK)
    if (info.valid_data) return true;
  return false;
}

void wait(int64_t until_ns) {
  int64_t left = until_ns - peer_now();
  if (left <= 0) return;
  ConditionSeq active;
  waitset.wait(active, {static_cast<int32_t>(left / 1000000000), static_cast<uint32_t>(left % 1000000000)});
}

void end() {
  for (auto* participant : participants) {
    participant->delete_contained_entities();
    DomainParticipantFactory::get_instance()->delete_participant(participant);
  }
}

}  // namespace

int main(int argc, char** argv) {
  static const middleware fast = {"fastdds", node, writer, reader, send, take, wait, end};
  return pingpong_main(argc, argv, &fast);
}

// A stage of a chain on plain Fast DDS 2. Its name says how it takes messages: fast_listener in the
// function of a listener, any other one in a loop that sleeps in a waitset.
#include "stage.h"

#include <atomic>
#include <fastdds/dds/core/LoanableSequence.hpp>
#include <fastdds/dds/core/condition/WaitSet.hpp>
#include <fastdds/dds/domain/DomainParticipant.hpp>
#include <fastdds/dds/domain/DomainParticipantFactory.hpp>
#include <fastdds/dds/publisher/DataWriter.hpp>
#include <fastdds/dds/publisher/Publisher.hpp>
#include <fastdds/dds/subscriber/DataReader.hpp>
#include <fastdds/dds/subscriber/DataReaderListener.hpp>
#include <fastdds/dds/subscriber/SampleInfo.hpp>
#include <fastdds/dds/subscriber/Subscriber.hpp>
#include <fastdds/dds/topic/TopicDataType.hpp>
#include <fastdds/dds/topic/TypeSupport.hpp>
#include <fastdds/rtps/transport/UDPv4TransportDescriptor.h>
#include <memory>
#include <string>
#include <unistd.h>

using namespace eprosima::fastdds::dds;
using eprosima::fastrtps::Duration_t;
using eprosima::fastrtps::rtps::InstanceHandle_t;
using eprosima::fastrtps::rtps::SerializedPayload_t;
using eprosima::fastrtps::types::ReturnCode_t;

namespace {

// std_msgs/msg/String: a header of four bytes, the length with its final zero, the characters.
class Text : public TopicDataType {
 public:
  Text() {
    setName("std_msgs::msg::dds_::String_");
    m_typeSize = kHeader + sizeof(uint32_t) + 252;
    m_isGetKeyDefined = false;
  }
  bool serialize(void* data, SerializedPayload_t* payload) override {
    const auto& text = *static_cast<std::string*>(data);
    const uint8_t header[kHeader] = {0, 1, 0, 0};  // CDR, little endian
    const uint32_t length = static_cast<uint32_t>(text.size()) + 1;
    if (payload->max_size < kHeader + sizeof length + length) return false;
    payload->encapsulation = CDR_LE;
    memcpy(payload->data, header, kHeader);
    memcpy(payload->data + kHeader, &length, sizeof length);
    memcpy(payload->data + kHeader + sizeof length, text.c_str(), length);
    payload->length = kHeader + sizeof length + length;
    return true;
  }
  bool deserialize(SerializedPayload_t* payload, void* data) override {
    uint32_t length = 0;
    if (payload->length < kHeader + sizeof length) return false;
    memcpy(&length, payload->data + kHeader, sizeof length);
    if (length == 0 || payload->length < kHeader + sizeof length + length) return false;
    const auto* text = reinterpret_cast<const char*>(payload->data + kHeader + sizeof length);
    static_cast<std::string*>(data)->assign(text, length - 1);
    return true;
  }
  std::function<uint32_t()> getSerializedSizeProvider(void*) override {
    const uint32_t size = m_typeSize;
    return [size] { return size; };
  }
  void* createData() override { return new std::string; }
  void deleteData(void* data) override { delete static_cast<std::string*>(data); }
  bool getKey(void*, InstanceHandle_t*, bool) override { return false; }

 private:
  static constexpr uint32_t kHeader = 4;
};

stage stage_;
std::atomic<int> done{0};
DataWriter* writer = nullptr;

void put(std::string text) {
  if (!writer->write(&text)) stage_die("writing failed");
}

// One message, if there is one.
bool work(DataReader* reader) {
  std::string text;
  SampleInfo info;
  if (reader->take_next_sample(&text, &info) != ReturnCode_t::RETCODE_OK) return false;
  if (info.valid_data) {
    stage_begin(&stage_);
    if (writer) put(text);
    stage_end(&stage_);
    done = stage_.runs;
  }
  return true;
}

class Listener : public DataReaderListener {
 public:
  void on_data_available(DataReader* reader) override {
    while (work(reader)) continue;
  }
};

void take_all(Subscriber* subscriber, Topic* topic, const DataReaderQos& qos) {
  static Listener listener;
  if (strcmp(stage_.name, "fast_listener") == 0) {
    if (!subscriber->create_datareader(topic, qos, &listener, StatusMask::data_available()))
      stage_die("no reader");
    while (done < stage_.count) stage_sleep(20);
    return;
  }
  auto* reader = subscriber->create_datareader(topic, qos);
  if (!reader) stage_die("no reader");
  WaitSet waitset;
  reader->get_statuscondition().set_enabled_statuses(StatusMask::data_available());
  waitset.attach_condition(reader->get_statuscondition());
  while (done < stage_.count) {
    ConditionSeq active;
    waitset.wait(active, Duration_t(1, 0));
    while (work(reader)) continue;
  }
}

}  // namespace

int main(int argc, char** argv) {
  stage_read(&stage_, argc, argv);
  const char* domain = getenv("ROS_DOMAIN_ID");
  auto* factory = DomainParticipantFactory::get_instance();
  // Not by shared memory: what a program on another version of Fast DDS has left there ends this one.
  DomainParticipantQos by_udp = PARTICIPANT_QOS_DEFAULT;
  by_udp.transport().use_builtin_transports = false;
  by_udp.transport().user_transports.push_back(
      std::make_shared<eprosima::fastdds::rtps::UDPv4TransportDescriptor>());
  auto* participant = factory->create_participant(domain ? atoi(domain) : 0, by_udp);
  if (!participant) stage_die("no participant");
  TypeSupport type(new Text);
  type.register_type(participant);
  auto topic = [&](const char* name) {
    return participant->create_topic(name, type.get_type_name(), TOPIC_QOS_DEFAULT);
  };
  if (stage_.out) {
    DataWriterQos qos = DATAWRITER_QOS_DEFAULT;
    qos.reliability().kind = RELIABLE_RELIABILITY_QOS;
    qos.durability().kind = VOLATILE_DURABILITY_QOS;
    qos.history().depth = 10;
    qos.data_sharing().off();
    auto* publisher = participant->create_publisher(PUBLISHER_QOS_DEFAULT);
    writer = publisher->create_datawriter(topic(stage_.out), qos);
    if (!writer) stage_die("no writer");
    PublicationMatchedStatus status;
    do {
      stage_sleep(20);
      writer->get_publication_matched_status(status);
    } while (status.current_count == 0);
    // The other side may learn of it a little later.
    stage_sleep(300);
  }
  if (stage_.in) {
    DataReaderQos qos = DATAREADER_QOS_DEFAULT;
    qos.reliability().kind = RELIABLE_RELIABILITY_QOS;
    qos.history().depth = 10;
    qos.data_sharing().off();
    auto* subscriber = participant->create_subscriber(SUBSCRIBER_QOS_DEFAULT);
    take_all(subscriber, topic(stage_.in), qos);
  }
  for (int i = 0; !stage_.in && i < stage_.count; i++) {
    if (i > 0) stage_sleep(stage_.period_ms);
    stage_begin(&stage_);
    put(std::to_string(i));
    stage_end(&stage_);
  }
  // What was written last has arrived.
  if (writer) writer->wait_for_acknowledgments(Duration_t(5, 0));
  // And been worked on: a recording pairs it with its taker as long as this process is there.
  stage_sleep(500);
  stage_truth(&stage_);
  fflush(stdout);
  // The participant is left to the end of the process: that a writer is deleted calls listeners too.
  _exit(0);
}

// A stage of a chain that is two callbacks: a listener of plain Cyclone DDS puts what it takes into a
// channel of onbeat-flow, and a task for each item writes it to DDS. A line of truth for each.
#define _GNU_SOURCE
#include "stage.h"

#include <dds/dds.h>
#include <onbeat.h>
#include <unistd.h>
#include "text.h"

struct text {
  char data[64];
};

static struct stage heard, done;
static dds_entity_t participant, writer;
static OnbeatTasks *tasks;
static OnbeatProducer *producer;

static dds_entity_t checked(dds_entity_t entity) {
  if (entity < 0) stage_die(dds_strretcode(-entity));
  return entity;
}

static void check(OnbeatCode code) {
  if (code < 0) stage_die(onbeat_last_error());
}

static dds_entity_t topic(const char *name) {
  return checked(dds_create_topic(participant, &std_msgs_msg_dds__String__desc, name, NULL, NULL));
}

static void on_data(dds_entity_t reader, void *argument) {
  (void)argument;
  void *sample = NULL;
  dds_sample_info_t info;
  while (checked(dds_take(reader, &sample, &info, 1, 1)) > 0) {
    if (info.valid_data) {
      struct text text = {0};
      stage_begin(&heard);
      strncpy(text.data, ((std_msgs_msg_dds__String_ *)sample)->data, sizeof text.data - 1);
      check(onbeat_producer_send(producer, &text, sizeof text, ONBEAT_FOREVER));
      stage_end(&heard);
    }
    dds_return_loan(reader, &sample, 1);
  }
}

static uint32_t on_item(void *context, const uint8_t *bytes, const OnbeatItem *item) {
  (void)context, (void)item;
  struct text text;
  stage_begin(&done);
  memcpy(&text, bytes, sizeof text);
  std_msgs_msg_dds__String_ message = {text.data};
  checked(dds_write(writer, &message));
  stage_end(&done);
  if (done.runs == done.count) check(onbeat_tasks_stop(tasks));
  return ONBEAT_TASK_RESULT_NOTHING;
}

int main(int argc, char **argv) {
  char channel_name[64], channel_topic[80];
  stage_read(&heard, argc, argv);
  stage_read(&done, argc, argv);
  snprintf(channel_name, sizeof channel_name, "flow-relay-%d", getpid());
  const char *domain = getenv("ROS_DOMAIN_ID");
  participant = checked(dds_create_participant(domain ? atoi(domain) : 0, NULL, NULL));
  dds_qos_t *qos = dds_create_qos();
  dds_qset_reliability(qos, DDS_RELIABILITY_RELIABLE, DDS_SECS(10));
  dds_qset_history(qos, DDS_HISTORY_KEEP_LAST, 10);
  writer = checked(dds_create_writer(participant, topic(done.out), qos, NULL));
  dds_publication_matched_status_t status = {0};
  while (status.current_count == 0) {
    checked(dds_get_publication_matched_status(writer, &status));
    stage_sleep(20);
  }
  stage_sleep(300);
  OnbeatChannelOptions options =
      onbeat_channel_options(ONBEAT_POLICY_CREDIT, 4, sizeof(struct text));
  OnbeatChannel *channel = NULL;
  check(onbeat_channel_open(channel_name, &options, &channel));
  check(onbeat_tasks_new("flow_relay", &tasks));
  check(onbeat_tasks_on_item(tasks, "write", channel, on_item, NULL, NULL));
  check(onbeat_producer_open(channel, &producer));
  check(onbeat_channel_close(channel));
  dds_listener_t *listener = dds_create_listener(NULL);
  dds_lset_data_available(listener, on_data);
  checked(dds_create_reader(participant, topic(heard.in), qos, listener));
  check(onbeat_tasks_run(tasks));
  dds_wait_for_acks(writer, DDS_SECS(5));
  // And been worked on: a recording pairs it with its taker as long as this process is there.
  stage_sleep(500);
  snprintf(channel_topic, sizeof channel_topic, "/%s", channel_name);
  // As recordings call the channel and the input of the task.
  heard.out = channel_topic;
  stage_truth(&heard);
  done.name = "flow_relay/write";
  done.in = "/flow_relay/write/0";
  stage_truth(&done);
  return 0;
}

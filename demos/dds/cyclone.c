// A stage of a chain on plain Cyclone DDS. Its name says how it takes messages: cyclone_listener in
// the function of a listener, any other one in a loop that sleeps in a waitset.
#define _GNU_SOURCE
#include "stage.h"

#include <dds/dds.h>
#include "text.h"

static struct stage stage;
static dds_entity_t participant, writer;

static dds_entity_t checked(dds_entity_t entity) {
  if (entity < 0) stage_die(dds_strretcode(-entity));
  return entity;
}

static dds_entity_t topic(const char *name) {
  return checked(dds_create_topic(participant, &std_msgs_msg_dds__String__desc, name, NULL, NULL));
}

static void put(char *text) {
  std_msgs_msg_dds__String_ message = {text};
  checked(dds_write(writer, &message));
}

// One message, if there is one.
static bool work(dds_entity_t reader) {
  void *sample = NULL;
  dds_sample_info_t info;
  if (checked(dds_take(reader, &sample, &info, 1, 1)) == 0) return false;
  if (info.valid_data) {
    stage_begin(&stage);
    if (writer) put(((std_msgs_msg_dds__String_ *)sample)->data);
    stage_end(&stage);
  }
  dds_return_loan(reader, &sample, 1);
  return true;
}

static void on_data(dds_entity_t reader, void *argument) {
  (void)argument;
  while (work(reader)) continue;
}

static void wait_for_reader(void) {
  dds_publication_matched_status_t status = {0};
  while (status.current_count == 0) {
    checked(dds_get_publication_matched_status(writer, &status));
    stage_sleep(20);
  }
  // The other side may learn of it a little later.
  stage_sleep(300);
}

static void take_all(dds_qos_t *qos) {
  bool listens = strcmp(stage.name, "cyclone_listener") == 0;
  dds_listener_t *listener = dds_create_listener(NULL);
  dds_lset_data_available(listener, on_data);
  dds_entity_t reader =
      checked(dds_create_reader(participant, topic(stage.in), qos, listens ? listener : NULL));
  dds_delete_listener(listener);
  if (listens) {
    while (__atomic_load_n(&stage.runs, __ATOMIC_ACQUIRE) < stage.count) stage_sleep(20);
    return;
  }
  dds_entity_t waitset = checked(dds_create_waitset(participant));
  dds_entity_t condition = checked(dds_create_readcondition(reader, DDS_ANY_STATE));
  checked(dds_waitset_attach(waitset, condition, 0));
  while (stage.runs < stage.count) {
    checked(dds_waitset_wait(waitset, NULL, 0, DDS_SECS(1)));
    while (work(reader)) continue;
  }
}

int main(int argc, char **argv) {
  stage_read(&stage, argc, argv);
  const char *domain = getenv("ROS_DOMAIN_ID");
  participant = checked(dds_create_participant(domain ? atoi(domain) : 0, NULL, NULL));
  dds_qos_t *qos = dds_create_qos();
  dds_qset_reliability(qos, DDS_RELIABILITY_RELIABLE, DDS_SECS(10));
  dds_qset_history(qos, DDS_HISTORY_KEEP_LAST, 10);
  if (stage.out) {
    writer = checked(dds_create_writer(participant, topic(stage.out), qos, NULL));
    wait_for_reader();
  }
  if (stage.in) take_all(qos);
  for (int i = 0; !stage.in && i < stage.count; i++) {
    char text[16];
    snprintf(text, sizeof text, "%d", i);
    if (i > 0) stage_sleep(stage.period_ms);
    stage_begin(&stage);
    put(text);
    stage_end(&stage);
  }
  // What was written last has arrived.
  if (writer) dds_wait_for_acks(writer, DDS_SECS(5));
  // And been worked on: a recording pairs it with its taker as long as this process is there.
  stage_sleep(500);
  stage_truth(&stage);
  dds_delete_qos(qos);
  // The participant is left to the end of the process: that a writer is deleted calls listeners too.
  return 0;
}

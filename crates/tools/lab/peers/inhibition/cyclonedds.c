// Ping-pong on Cyclone DDS: a participant per node, and one waitset for all readers of the process.
#define _GNU_SOURCE
#include "pingpong.h"

#include <dds/dds.h>
#include "message.h"

static dds_entity_t waitset;

static dds_entity_t checked(dds_entity_t entity, const char *what) {
  if (entity < 0) peer_die("cyclonedds: %s: %s", what, dds_strretcode(-entity));
  return entity;
}

static void *kept(dds_entity_t entity) {
  dds_entity_t *made = malloc(sizeof *made);
  if (!made) peer_die("cyclonedds: no memory");
  *made = entity;
  return made;
}

static void *node(int number) {
  (void)number;
  return kept(checked(dds_create_participant(DDS_DOMAIN_DEFAULT, NULL, NULL), "participant"));
}

// Uses ROS 2's default QoS.
static dds_entity_t endpoint(dds_entity_t participant, const char *name, bool writes) {
  dds_qos_t *qos = dds_create_qos();
  dds_qset_reliability(qos, DDS_RELIABILITY_RELIABLE, DDS_INFINITY);
  dds_qset_durability(qos, DDS_DURABILITY_VOLATILE);
  dds_qset_history(qos, DDS_HISTORY_KEEP_LAST, 10);
  dds_entity_t topic = checked(dds_create_topic(participant, &Number_desc, name, NULL, NULL), "topic");
  dds_entity_t made = writes ? dds_create_writer(participant, topic, qos, NULL)
                             : dds_create_reader(participant, topic, qos, NULL);
  dds_delete_qos(qos);
  return checked(made, writes ? "writer" : "reader");
}

static void *writer(void *participant, const char *topic) {
  return kept(endpoint(*(dds_entity_t *)participant, topic, true));
}

static void *reader(void *participant, const char *topic) {
  dds_entity_t made = endpoint(*(dds_entity_t *)participant, topic, false);
  if (waitset == 0) waitset = checked(dds_create_waitset(DDS_CYCLONEDDS_HANDLE), "waitset");
  dds_entity_t condition = checked(dds_create_readcondition(made, DDS_ANY_STATE), "read condition");
  checked(dds_waitset_attach(waitset, condition, 0), "attaching");
  return kept(made);
}

static void send(void *opaque, int64_t number) {
  Number message = {.value = number};
  checked(dds_write(*(dds_entity_t *)opaque, &message), "writing");
}

static bool take(void *opaque, int64_t *number) {
  dds_entity_t from = *(dds_entity_t *)opaque;
  void *loan = NULL;
  dds_sample_info_t info = {.valid_data = false};
  while (checked(dds_take(from, &loan, &info, 1, 1), "taking") > 0) {
    *number = ((const Number *)loan)->value;
    checked(dds_return_loan(from, &loan, 1), "returning the loan");
    if (info.valid_data) return true;
  }
  return false;
}

static void wait(int64_t until_ns) {
  int64_t left = until_ns - peer_now();
  if (left > 0) checked(dds_waitset_wait(waitset, NULL, 0, left), "waiting");
}

static void end(void) { dds_delete(DDS_CYCLONEDDS_HANDLE); }

int main(int argc, char **argv) {
  static const struct middleware cyclone = {"cyclonedds", node, writer, reader, send, take, wait, end};
  return pingpong_main(argc, argv, &cyclone);
}

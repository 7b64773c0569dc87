// Cyclone DDS writers and readers for a topic and a size. CYCLONEDDS_URI chooses the transport.
#pragma once

#include "../transport.h"

#include <dds/dds.h>
#include <dds/ddsc/dds_data_allocator.h>
#include <dds/ddsc/dds_loan_api.h>
#include "message.h"

static inline dds_entity_t checked(dds_entity_t entity, const char *what) {
  if (entity < 0) peer_die("cyclonedds: %s: %s", what, dds_strretcode(-entity));
  return entity;
}

static inline const dds_topic_descriptor_t *type_of(size_t bytes) {
  switch (bytes) {
    case 64: return &Message64_desc;
    case 256: return &Message256_desc;
    case 1024: return &Message1024_desc;
    case 4096: return &Message4096_desc;
    case 16384: return &Message16384_desc;
    case 65536: return &Message65536_desc;
    case 262144: return &Message262144_desc;
    case 1048576: return &Message1048576_desc;
    case 4194304: return &Message4194304_desc;
    default: peer_die("cyclonedds: no type of %zu bytes", bytes);
  }
}

static inline dds_entity_t participant(void) {
  static dds_entity_t one = 0;
  if (one == 0) one = checked(dds_create_participant(DDS_DOMAIN_DEFAULT, NULL, NULL), "participant");
  return one;
}

// Reliable, volatile, KEEP_LAST: ROS 2's default, and a setting that shared memory supports.
static inline dds_qos_t *quality(void) {
  dds_qos_t *qos = dds_create_qos();
  dds_qset_reliability(qos, DDS_RELIABILITY_RELIABLE, DDS_SECS(10));
  dds_qset_durability(qos, DDS_DURABILITY_VOLATILE);
  dds_qset_history(qos, DDS_HISTORY_KEEP_LAST, 10);
  return qos;
}

static inline dds_entity_t endpoint(const char *name, size_t bytes, bool writes) {
  dds_qos_t *qos = quality();
  dds_entity_t topic = checked(dds_create_topic(participant(), type_of(bytes), name, qos, NULL), "topic");
  dds_entity_t made = writes ? dds_create_writer(participant(), topic, qos, NULL)
                             : dds_create_reader(participant(), topic, qos, NULL);
  dds_delete_qos(qos);
  checked(made, writes ? "writer" : "reader");
  // A silent fallback to the network would give figures of another transport.
  bool wanted = getenv("PEER_SHARED_MEMORY") != NULL;
  if (wanted != dds_is_shared_memory_available(made))
    peer_die("cyclonedds: shared memory is %s: is iox-roudi running?", wanted ? "not available" : "in use");
  return made;
}

// The application's own buffer, used where nothing is loaned.
struct sender {
  dds_entity_t writer;
  bool loans;
  void *buffer;
};

static inline struct sender *sender(const char *name, size_t bytes) {
  struct sender *made = calloc(1, sizeof *made);
  if (!made || !(made->buffer = calloc(1, bytes))) peer_die("cyclonedds: no memory");
  made->writer = endpoint(name, bytes, true);
  made->loans = dds_is_loan_available(made->writer);
  return made;
}

static inline void send_message(struct sender *sender, const struct stamp *stamp, size_t bytes) {
  void *payload = sender->buffer;
  if (sender->loans) checked(dds_loan_sample(sender->writer, &payload), "loaning");
  peer_fill(payload, bytes, stamp);
  checked(dds_write(sender->writer, payload), "writing");
}

// Takes one message, if there is one, as a loan of the reader.
static inline bool take_message(dds_entity_t reader, size_t bytes, struct sample *sample) {
  void *loan = NULL;
  dds_sample_info_t info;
  int count = checked(dds_take(reader, &loan, &info, 1, 1), "taking");
  if (count == 0) return false;
  bool valid = info.valid_data;
  if (valid) peer_arrived(loan, bytes, sample);
  checked(dds_return_loan(reader, &loan, count), "returning the loan");
  return valid;
}

// Cyclone DDS as a peer: a writer, and a reader that sleeps in a waitset.
#define _GNU_SOURCE
#include "endpoints.h"

struct receiver {
  dds_entity_t reader, waitset;
};

static void *writer(const char *topic, size_t bytes) { return sender(topic, bytes); }

static void *reader(const char *topic, size_t bytes) {
  struct receiver *made = calloc(1, sizeof *made);
  if (!made) peer_die("cyclonedds: no memory");
  made->reader = endpoint(topic, bytes, false);
  made->waitset = checked(dds_create_waitset(participant()), "waitset");
  dds_entity_t condition = checked(dds_create_readcondition(made->reader, DDS_ANY_STATE), "read condition");
  checked(dds_waitset_attach(made->waitset, condition, 0), "attaching");
  return made;
}

static bool matched(void *opaque, int readers) {
  dds_publication_matched_status_t status;
  checked(dds_get_publication_matched_status(((struct sender *)opaque)->writer, &status), "matching");
  return (int)status.current_count >= readers;
}

static void send_stamp(void *opaque, const struct stamp *stamp, size_t bytes) {
  send_message(opaque, stamp, bytes);
}

static bool receive(void *opaque, int64_t deadline_ns, size_t bytes, struct sample *sample) {
  struct receiver *receiver = opaque;
  while (!take_message(receiver->reader, bytes, sample)) {
    int64_t left = deadline_ns == 0 ? 0 : deadline_ns - peer_now();
    if (left <= 0) return false;
    checked(dds_waitset_wait(receiver->waitset, NULL, 0, left), "waiting");
  }
  return true;
}

int main(int argc, char **argv) {
  static const struct peer peer = {"cyclonedds", writer, reader, matched, send_stamp, receive};
  int code = peer_main(argc, argv, &peer);
  dds_delete(participant());
  return code;
}

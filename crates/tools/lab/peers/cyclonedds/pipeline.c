// The perception pipeline as callbacks on Cyclone DDS. Each node has a thread that every message
// wakes, and consecutive nodes are in different processes.
//
// name=N process=P processes=C: node i is in process i % C. The process of the last node writes
// `file=`: the time at which an iteration was due to start (intended, sent) and the time at which
// it ended (received). README.md has the rest of the protocol.
#define _GNU_SOURCE
#include "endpoints.h"
#include "../pipeline.h"

#include <stdatomic.h>

struct input {
  dds_entity_t reader;
  size_t bytes;
  // The message that a non-triggering callback keeps for the triggering one.
  struct stamp kept;
};

struct node {
  int number, inputs;
  struct input input[PIPELINE_INPUTS];
  dds_entity_t waitset;
  struct sender *sender;
  pthread_t thread;
};

static struct peer_run run;
static struct node *nodes[PIPELINE_NODES];
static struct sample *samples;
static size_t count;
static atomic_bool begun;

// Counting begins with the first node of this process that has a message to count.
static void begin(void) {
  if (!atomic_exchange(&begun, true)) run.began = peer_used();
}

static struct node *node(int number, const char *name) {
  struct node *made = calloc(1, sizeof *made);
  if (!made) peer_die("pipeline: no memory");
  char topic[128];
  made->number = number;
  made->inputs = pipeline_inputs(number);
  made->waitset = checked(dds_create_waitset(participant()), "waitset");
  for (int i = 0; i < made->inputs; i++) {
    int source = pipeline_source(number, i);
    made->input[i].bytes = pipeline_bytes(source);
    snprintf(topic, sizeof topic, "%s_%d", name, source);
    made->input[i].reader = endpoint(topic, made->input[i].bytes, false);
    dds_entity_t condition = checked(dds_create_readcondition(made->input[i].reader, DDS_ANY_STATE), "read condition");
    checked(dds_waitset_attach(made->waitset, condition, 0), "attaching");
  }
  snprintf(topic, sizeof topic, "%s_%d", name, number);
  made->sender = sender(topic, pipeline_bytes(number));
  return made;
}

static void publish(struct node *node, struct stamp stamp) {
  send_message(node->sender, &stamp, pipeline_bytes(node->number));
}

static void *work(void *opaque) {
  struct node *node = opaque;
  for (;;) {
    if (checked(dds_waitset_wait(node->waitset, NULL, 0, DDS_SECS(30)), "waiting") == 0)
      peer_die("pipeline: node %d had no message for 30 s", node->number);
    // Inputs that do not trigger are read first, so that a trigger finds their latest message.
    for (int i = node->inputs - 1; i >= 0; i--) {
      struct sample sample;
      while (take_message(node->input[i].reader, node->input[i].bytes, &sample)) {
        node->input[i].kept = sample.stamp;
        if (i > 0) continue;
        publish(node, sample.stamp);
        if (node->number == PIPELINE_NODES - 1 && sample.stamp.sequence >= 0 && count < (size_t)run.count) {
          sample.received_ns = peer_now();
          samples[count++] = sample;
        }
        if (sample.stamp.sequence == 0) begin();
        if (sample.stamp.sequence == run.count - 1) return NULL;
      }
    }
  }
}

static void source(struct node *node) {
  int64_t period = (int64_t)(1e9 / run.rate_hz), intended = run.start_ns;
  for (long sequence = -PEER_WARM_UP; sequence < run.count; sequence++, intended += period) {
    if (sequence == 0) begin();
    peer_sleep_until(intended);
    publish(node, (struct stamp){sequence, intended, intended});
  }
}

static bool all_matched(void) {
  for (int i = 0; i < PIPELINE_NODES; i++) {
    if (!nodes[i]) continue;
    dds_publication_matched_status_t status;
    checked(dds_get_publication_matched_status(nodes[i]->sender->writer, &status), "matching");
    if ((int)status.current_count < pipeline_readers(i)) return false;
  }
  return true;
}

static void await_all(void) {
  int64_t limit = peer_now() + 60000000000LL;
  while (!all_matched()) {
    if (peer_now() > limit) peer_die("pipeline: the nodes did not find each other within 60 s");
    usleep(20000);
  }
}

static void iterate(void) {
  count = 0;
  samples = calloc((size_t)run.count, sizeof *samples);
  if (!samples) peer_die("pipeline: no memory");
  begun = false;
  for (int i = 1; i < PIPELINE_NODES; i++)
    if (nodes[i] && pthread_create(&nodes[i]->thread, NULL, work, nodes[i]) != 0) peer_die("cannot start a thread");
  run.start_ns = protocol_await_start();
  if (nodes[0]) source(nodes[0]);
  for (int i = 1; i < PIPELINE_NODES; i++)
    if (nodes[i]) pthread_join(nodes[i]->thread, NULL);
  protocol_done(run.count, &run.began);
  protocol_await(PROTOCOL_STOP);
  if (nodes[PIPELINE_NODES - 1]) peer_write(&run, samples, count);
  protocol_written();
  free(samples);
}

int main(int argc, char **argv) {
  struct protocol_words words = protocol_arguments(argc, argv);
  int process = atoi(protocol_text(&words, "process"));
  int processes = (int)protocol_number(&words, "processes");
  for (int i = process; i < PIPELINE_NODES; i += processes) nodes[i] = node(i, protocol_text(&words, "name"));
  await_all();
  struct protocol_command command;
  for (protocol_read(&command); command.kind != PROTOCOL_END; protocol_read(&command)) {
    if (command.kind != PROTOCOL_RUN) peer_die("the experiment sent a command out of order");
    peer_prepare(&run, &command.words);
    iterate();
  }
  dds_delete(participant());
  return 0;
}

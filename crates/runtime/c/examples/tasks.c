// A sensor and a consumer of its scans in two processes, as tasks: nothing is lost.
//
//   tasks sensor  CHANNEL COUNT    a task sends a scan each millisecond
//   tasks fusion  CHANNEL COUNT    one task runs for each scan, another after each second scan
#include "onbeat.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct scan {
    uint64_t number;
    uint8_t points[248];
};

struct state {
    OnbeatTasks *tasks;
    OnbeatProducer *producer;
    uint64_t count;
    uint64_t seen;
    uint64_t gaps;
    uint64_t fused;
};

static void check(OnbeatCode code, const char *what) {
    if (code < 0) {
        fprintf(stderr, "%s: %s\n", what, onbeat_last_error());
        exit(1);
    }
}

static void write_scan(void *context, uint8_t *bytes, size_t length) {
    memset(bytes, 0, length);
    memcpy(bytes, context, sizeof(uint64_t));
}

static uint32_t sense(void *context) {
    struct state *state = context;
    // Sending waits for the expected consumer, and for its credits.
    check(onbeat_producer_fill(state->producer, sizeof(struct scan), ONBEAT_FOREVER, write_scan,
                               &state->seen),
          "send");
    if (++state->seen == state->count) {
        check(onbeat_tasks_stop(state->tasks), "stop");
    }
    return ONBEAT_TASK_RESULT_OUTPUT;
}

static uint32_t take(void *context, const uint8_t *bytes, const OnbeatItem *item) {
    struct state *state = context;
    uint64_t number;
    memcpy(&number, bytes, sizeof number);
    state->gaps += number != state->seen || item->sequence != number;
    state->seen = number + 1;
    return number % 2 == 1 ? ONBEAT_TASK_RESULT_OUTPUT : ONBEAT_TASK_RESULT_NOTHING;
}

static uint32_t fuse(void *context) {
    struct state *state = context;
    state->fused++;
    if (state->seen == state->count) {
        check(onbeat_tasks_stop(state->tasks), "stop");
    }
    return ONBEAT_TASK_RESULT_NOTHING;
}

int main(int count, char **words) {
    if (count != 4) {
        fprintf(stderr, "usage: tasks sensor|fusion CHANNEL COUNT (an even number)\n");
        return 2;
    }
    OnbeatChannelOptions options =
        onbeat_channel_options(ONBEAT_POLICY_CREDIT, 4, sizeof(struct scan));
    OnbeatChannel *channel = NULL;
    check(onbeat_channel_open(words[2], &options, &channel), "channel");
    struct state state = {NULL, NULL, strtoull(words[3], NULL, 10), 0, 0, 0};
    check(onbeat_tasks_new(words[1], &state.tasks), "tasks");
    if (strcmp(words[1], "sensor") == 0) {
        check(onbeat_producer_open(channel, &state.producer), "producer");
        check(onbeat_tasks_every(state.tasks, "scan", 1000000, 0, sense, &state, NULL), "task");
    } else {
        uint32_t scans = 0;
        check(onbeat_tasks_on_item(state.tasks, "scan", channel, take, &state, &scans), "task");
        check(onbeat_tasks_after(state.tasks, "fuse", scans, fuse, &state, NULL), "task");
    }
    check(onbeat_channel_close(channel), "channel");
    check(onbeat_tasks_run(state.tasks), "run");
    printf("%" PRIu64 " scans, %" PRIu64 " gaps, %" PRIu64 " fused\n", state.seen, state.gaps,
           state.fused);
    check(onbeat_producer_close(state.producer), "producer");
    check(onbeat_tasks_close(state.tasks), "tasks");
    return 0;
}

// Two processes exchange messages over a link. The same code over shared memory and TCP.
//
//   exchange key FILE                            make a key
//   exchange listen  shm NAME COUNT              answer messages until the peer closes
//   exchange connect shm NAME COUNT              send COUNT messages, and check each answer
//   exchange listen  tcp ADDRESS COUNT KEYFILE   print the address, then as above
//   exchange connect tcp ADDRESS COUNT KEYFILE
//
// With `clear` after KEYFILE at both ends nothing is encrypted after the handshake.
#include "onbeat.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGE_BYTES 1024

static void check(OnbeatCode code, const char *what) {
    if (code < 0) {
        fprintf(stderr, "%s: %s\n", what, onbeat_last_error());
        exit(1);
    }
}

static OnbeatEnd *make_end(int count, char **words, bool listens) {
    OnbeatEnd *end = NULL;
    if (strcmp(words[2], "shm") == 0) {
        check(onbeat_end_shm(words[3], listens, &end), "end");
        return end;
    }
    OnbeatKey *key = NULL;
    check(onbeat_key_read_file(count > 5 ? words[5] : NULL, &key), "key");
    check(onbeat_end_tcp(words[3], listens, key, &end), "end");
    check(onbeat_key_close(key), "key");
    if (count > 6 && strcmp(words[6], "clear") == 0) {
        check(onbeat_end_in_clear(end), "end");
    }
    char address[64];
    check(onbeat_end_address(end, address, sizeof address), "address");
    printf("%s\n", address);
    fflush(stdout);
    return end;
}

// Sends each message back until the peer closes. Publishes the number of messages so far as its
// value.
static void answer(OnbeatOutgoing *outgoing, OnbeatIncoming *incoming) {
    uint8_t message[MESSAGE_BYTES];
    for (uint64_t answered = 1;; answered++) {
        size_t length = 0;
        OnbeatCode code = onbeat_receive(incoming, ONBEAT_FOREVER, message, sizeof message, &length, NULL);
        if (code == ONBEAT_CODE_CLOSED) {
            return;
        }
        check(code, "receive");
        check(onbeat_publish(outgoing, &answered, sizeof answered), "publish");
        check(onbeat_send(outgoing, message, length, ONBEAT_FOREVER, NULL), "send");
    }
}

static void write_number(void *context, uint8_t *bytes, size_t length) {
    memset(bytes, 0, length);
    memcpy(bytes, context, sizeof(uint64_t));
}

struct answer {
    uint64_t number;
    size_t length;
    uint64_t content;
};

static void read_answer(void *context, uint64_t number, const uint8_t *bytes, size_t length) {
    struct answer *answer = context;
    answer->number = number;
    answer->length = length;
    memcpy(&answer->content, bytes, sizeof answer->content);
}

static void ask(OnbeatOutgoing *outgoing, OnbeatIncoming *incoming, uint64_t count) {
    for (uint64_t n = 0; n < count; n++) {
        size_t length = 8 + (n * 37) % (MESSAGE_BYTES - 8);
        check(onbeat_send_filled(outgoing, length, ONBEAT_FOREVER, write_number, &n, NULL), "send");
        struct answer answer = {0, 0, 0};
        OnbeatCode code = onbeat_receive_taken(incoming, ONBEAT_FOREVER, read_answer, &answer);
        check(code, "receive");
        if (answer.number != n || answer.content != n || answer.length != length) {
            fprintf(stderr, "answer %" PRIu64 " to message %" PRIu64 "\n", answer.content, n);
            exit(1);
        }
    }
    uint64_t answered = 0;
    check(onbeat_read(incoming, ONBEAT_FOREVER, &answered, sizeof answered, NULL), "read");
    printf("%" PRIu64 " answers, the peer's last value is %" PRIu64 "\n", count, answered);
}

int main(int count, char **words) {
    if (count == 3 && strcmp(words[1], "key") == 0) {
        check(onbeat_key_create_file(words[2]), "key");
        return 0;
    }
    if (count < 5) {
        fprintf(stderr, "usage: exchange listen|connect shm|tcp NAME|ADDRESS COUNT [KEYFILE [clear]]\n");
        return 2;
    }
    bool listens = strcmp(words[1], "listen") == 0;
    OnbeatEnd *end = make_end(count, words, listens);
    OnbeatSizes sizes = {.credits = 4, .message_bytes = MESSAGE_BYTES, .value_bytes = 8};
    OnbeatOutgoing *outgoing = NULL;
    OnbeatIncoming *incoming = NULL;
    uint64_t deadline = onbeat_now_ns() + UINT64_C(60000000000);
    check(onbeat_end_initialize(end, &sizes, NULL, 0, deadline, &outgoing, &incoming), "link");
    if (listens) {
        answer(outgoing, incoming);
    } else {
        ask(outgoing, incoming, strtoull(words[4], NULL, 10));
    }
    check(onbeat_outgoing_close(outgoing), "close");
    check(onbeat_incoming_close(incoming), "close");
    check(onbeat_end_close(end), "close");
    return 0;
}

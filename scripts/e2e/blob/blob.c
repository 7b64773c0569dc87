// Publishes or receives onbeat_test_msgs/Blob, and prints what bytes each item has.
//
// usage: blob pub TOPIC QOS COUNT PERIOD_MS [--ros-args ...]
//        blob sub TOPIC QOS SECONDS [--ros-args ...]
// QOS: r (reliable) or b (best effort), then t (transient local) or v (volatile).
// A publisher begins when it gets a line on its standard input, and has as many subscribers as the
// number in it, if there is one; it ends with the input. A subscriber says "matched" when it has a
// publisher. Each item is a line: a hash of its content (as rmw_serialize writes it, which differs from
// what goes over the wire by padding), and for a subscriber one of the bytes as they came.
#include <rcl/error_handling.h>
#include <rcl/rcl.h>
#include <rmw/rmw.h>
#include <rosidl_runtime_c/primitives_sequence_functions.h>
#include <rosidl_runtime_c/string_functions.h>
#include <rosidl_runtime_c/u16string_functions.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "onbeat_test_msgs/msg/blob.h"

static void check(rcl_ret_t ret, const char* what) {
  if (ret == RCL_RET_OK) return;
  fprintf(stderr, "blob: %s: %s\n", what, rcl_get_error_string().str);
  exit(1);
}

static uint64_t hash_of(const rcl_serialized_message_t* bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (size_t i = 0; i < bytes->buffer_length; i++) hash = (hash ^ bytes->buffer[i]) * 0x100000001b3u;
  return hash;
}

static void sleep_ms(long ms) {
  struct timespec t = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&t, NULL);
}

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

static void fill_part(onbeat_test_msgs__msg__Part* part, int k) {
  char label[16];
  snprintf(label, sizeof label, "part-%d", k % 1000);
  rosidl_runtime_c__String__assign(&part->label, label);
  for (int i = 0; i < 3; i++) part->position[i] = k * 0.1 + i;
  rosidl_runtime_c__uint8__Sequence__init(&part->data, (size_t)(k * 37 % 90000));
  for (size_t i = 0; i < part->data.size; i++) part->data.data[i] = (uint8_t)(i * 31 + k);
}

static void fill(onbeat_test_msgs__msg__Blob* blob, int k) {
  onbeat_test_msgs__msg__Blob__init(blob);
  blob->header.stamp.sec = k;
  rosidl_runtime_c__String__assign(&blob->header.frame_id, "map");
  blob->number = 0x123456789abcdef0u + k;
  rosidl_runtime_c__String__assign(&blob->text, "text with \"quotes\" and \xc3\xa4");
  rosidl_runtime_c__String__Sequence__init(&blob->words, k % 5);
  for (int i = 0; i < k % 5; i++) rosidl_runtime_c__String__assign(&blob->words.data[i], "word");
  onbeat_test_msgs__msg__Part__Sequence__init(&blob->parts, k % 4);
  for (int i = 0; i < k % 4; i++) fill_part(&blob->parts.data[i], k * 100 + i);
  for (int i = 0; i < 2; i++) fill_part(&blob->pair[i], k + i);
  rosidl_runtime_c__int32__Sequence__init(&blob->bounded, k % 6);
  for (int i = 0; i < k % 6; i++) blob->bounded.data[i] = -k - i;
  blob->flag = k % 2;
  rosidl_runtime_c__U16String__assign(&blob->wide, (const uint16_t[]){0x4f60, 0x597d, 0});
}

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  bool publishes = !strcmp(argv[1], "pub");
  rcl_allocator_t allocator = rcl_get_default_allocator();
  rcl_init_options_t options = rcl_get_zero_initialized_init_options();
  check(rcl_init_options_init(&options, allocator), "options");
  rcl_context_t context = rcl_get_zero_initialized_context();
  check(rcl_init(argc, (const char* const*)argv, &options, &context), "init");
  rcl_node_options_t node_options = rcl_node_get_default_options();
  rcl_node_t node = rcl_get_zero_initialized_node();
  const char* name = publishes ? "blob_pub" : "blob_sub";
  check(rcl_node_init(&node, name, "/test", &context, &node_options), "node");
  rmw_qos_profile_t qos = rmw_qos_profile_default;
  qos.depth = 50;
  qos.reliability = argv[3][0] == 'r' ? RMW_QOS_POLICY_RELIABILITY_RELIABLE
                                      : RMW_QOS_POLICY_RELIABILITY_BEST_EFFORT;
  qos.durability = argv[3][1] == 't' ? RMW_QOS_POLICY_DURABILITY_TRANSIENT_LOCAL
                                     : RMW_QOS_POLICY_DURABILITY_VOLATILE;
  const rosidl_message_type_support_t* type = ROSIDL_GET_MSG_TYPE_SUPPORT(onbeat_test_msgs, msg, Blob);
  rcl_serialized_message_t bytes = rmw_get_zero_initialized_serialized_message();
  check(rmw_serialized_message_init(&bytes, 1 << 20, &allocator), "memory");
  if (publishes) {
    rcl_publisher_options_t own = rcl_publisher_get_default_options();
    own.qos = qos;
    rcl_publisher_t publisher = rcl_get_zero_initialized_publisher();
    check(rcl_publisher_init(&publisher, &node, type, argv[2], &own), "publisher");
    char line[32];
    if (!fgets(line, sizeof line, stdin)) return 0;
    for (size_t takers = 0; takers < (size_t)atoi(line); sleep_ms(1))
      check(rcl_publisher_get_subscription_count(&publisher, &takers), "count");
    for (int k = 0; k < atoi(argv[4]); k++) {
      onbeat_test_msgs__msg__Blob blob;
      fill(&blob, k);
      memset(bytes.buffer, 0, bytes.buffer_capacity);  // what it skips for alignment stays
      if (rmw_serialize(&blob, type, &bytes) != RMW_RET_OK) return 1;
      printf("%016lx\n", hash_of(&bytes));
      fflush(stdout);
      check(rcl_publish(&publisher, &blob, NULL), "publish");
      onbeat_test_msgs__msg__Blob__fini(&blob);
      if (atoi(argv[5]) > 0) sleep_ms(atoi(argv[5]));
    }
    while (getchar() != EOF) {
    }
    return 0;
  }
  rcl_subscription_options_t own = rcl_subscription_get_default_options();
  own.qos = qos;
  rcl_subscription_t subscription = rcl_get_zero_initialized_subscription();
  check(rcl_subscription_init(&subscription, &node, type, argv[2], &own), "subscription");
  bool matched = false;
  for (double end = seconds() + atof(argv[4]); seconds() < end; sleep_ms(1)) {
    size_t count = 0;
    check(rcl_subscription_get_publisher_count(&subscription, &count), "count");
    if (!matched && count > 0) {
      puts("matched");
      fflush(stdout);
      matched = true;
    }
    rmw_message_info_t info;
    while (rcl_take_serialized_message(&subscription, &bytes, &info, NULL) == RCL_RET_OK) {
      uint64_t raw = hash_of(&bytes);
      onbeat_test_msgs__msg__Blob blob;
      onbeat_test_msgs__msg__Blob__init(&blob);
      if (rmw_deserialize(&bytes, type, &blob) != RMW_RET_OK) return 1;
      memset(bytes.buffer, 0, bytes.buffer_capacity);
      if (rmw_serialize(&blob, type, &bytes) != RMW_RET_OK) return 1;
      onbeat_test_msgs__msg__Blob__fini(&blob);
      printf("%016lx %016lx\n", hash_of(&bytes), raw);
      fflush(stdout);
    }
    rcl_reset_error();
  }
  return 0;
}

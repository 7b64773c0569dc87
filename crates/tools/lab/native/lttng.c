// ROS 2's trace functions on LTTng's user-space tracer, to be preloaded.
//
// They replace those of libtracetools. The wheels' libtracetools is linked to an older tracer,
// which current LTTng sessions cannot reach.
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "lttng-events.h"

void ros_trace_rcl_publish(const void *publisher, const void *message) {
  lttng_ust_tracepoint(ros2, rcl_publish, publisher, message);
}

void ros_trace_rmw_publish(const void *publisher, const void *message, int64_t timestamp) {
  lttng_ust_tracepoint(ros2, rmw_publish, publisher, message, timestamp);
}

void ros_trace_rmw_take(const void *subscription, const void *message, int64_t timestamp, bool taken) {
  lttng_ust_tracepoint(ros2, rmw_take, subscription, message, timestamp, taken);
}

void ros_trace_rcl_take(const void *message) {
  lttng_ust_tracepoint(ros2, rcl_take, message);
}

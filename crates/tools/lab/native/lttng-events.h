// The ROS 2 events that two nodes on rcl raise for each message, with the names and fields of
// ros2_tracing. LTTng's headers include this file several times.
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER ros2
#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "lttng-events.h"

#if !defined(LTTNG_EVENTS_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define LTTNG_EVENTS_H

#include <lttng/tracepoint.h>
#include <stdbool.h>
#include <stdint.h>

LTTNG_UST_TRACEPOINT_EVENT(
    ros2, rcl_publish,
    LTTNG_UST_TP_ARGS(const void *, publisher, const void *, message),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer_hex(const void *, publisher_handle, publisher)
        lttng_ust_field_integer_hex(const void *, message, message)))

LTTNG_UST_TRACEPOINT_EVENT(
    ros2, rmw_publish,
    LTTNG_UST_TP_ARGS(const void *, publisher, const void *, message, int64_t, timestamp),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer_hex(const void *, rmw_publisher_handle, publisher)
        lttng_ust_field_integer_hex(const void *, message, message)
        lttng_ust_field_integer(int64_t, timestamp, timestamp)))

LTTNG_UST_TRACEPOINT_EVENT(
    ros2, rmw_take,
    LTTNG_UST_TP_ARGS(const void *, subscription, const void *, message, int64_t, timestamp, bool, taken),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer_hex(const void *, rmw_subscription_handle, subscription)
        lttng_ust_field_integer_hex(const void *, message, message)
        lttng_ust_field_integer(int64_t, source_timestamp, timestamp)
        lttng_ust_field_integer(int, taken, taken ? 1 : 0)))

LTTNG_UST_TRACEPOINT_EVENT(
    ros2, rcl_take,
    LTTNG_UST_TP_ARGS(const void *, message),
    LTTNG_UST_TP_FIELDS(lttng_ust_field_integer_hex(const void *, message, message)))

#endif
#include <lttng/tracepoint-event.h>

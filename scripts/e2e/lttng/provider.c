// A library to preload. It makes events of LTTng-UST in the tracing calls of ROS 2.
//
// The libtracetools of the wheels has its own copy of LTTng, which sessions of the system do not see. This library has
// the same functions as libtracetools. Each function first hits the tracepoint that the environment's
// tracetools/tp_call.h declares. It then calls the function of libtracetools, where onbeat's probes are.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRACEPOINT_CREATE_PROBES
#define TRACEPOINT_DEFINE
#include "tracetools/tp_call.h"

#define EVENT(name, parameters, ...)                                         \
  void ros_trace_##name parameters {                                         \
    static void(*original) parameters;                                       \
    tracepoint(ros2, name, ##__VA_ARGS__);                                   \
    if (!original) *(void **)&original = dlsym(RTLD_NEXT, "ros_trace_" #name); \
    if (original) original(__VA_ARGS__);                                     \
  }                                                                          \
  bool ros_trace_enabled_##name(void) { return true; }                       \
  void ros_trace_do_##name parameters { ros_trace_##name(__VA_ARGS__); }

typedef const void *P;
typedef const char *S;
typedef const uint8_t *G;

EVENT(rcl_init, (P a), a)
EVENT(rcl_node_init, (P a, P b, S c, S d), a, b, c, d)
EVENT(rmw_publisher_init, (P a, G b), a, b)
EVENT(rcl_publisher_init, (P a, P b, P c, S d, size_t e), a, b, c, d, e)
EVENT(rclcpp_intra_publish, (P a, P b), a, b)
EVENT(rcl_publish, (P a, P b), a, b)
EVENT(rmw_publish, (P a, P b, int64_t c), a, b, c)
EVENT(rmw_subscription_init, (P a, G b), a, b)
EVENT(rcl_subscription_init, (P a, P b, P c, S d, size_t e), a, b, c, d, e)
EVENT(rclcpp_subscription_init, (P a, P b), a, b)
EVENT(rclcpp_subscription_callback_added, (P a, P b), a, b)
EVENT(rmw_take, (P a, P b, int64_t c, bool d), a, b, c, d)
EVENT(rcl_take, (P a), a)
EVENT(rclcpp_take, (P a), a)
EVENT(rcl_service_init, (P a, P b, P c, S d), a, b, c, d)
EVENT(rclcpp_service_callback_added, (P a, P b), a, b)
EVENT(rmw_take_request, (P a, P b, G c, int64_t d, bool e), a, b, c, d, e)
EVENT(rmw_send_response, (P a, P b, G c, int64_t d, int64_t e), a, b, c, d, e)
EVENT(rmw_client_init, (P a, G b), a, b)
EVENT(rcl_client_init, (P a, P b, P c, S d), a, b, c, d)
EVENT(rmw_send_request, (P a, P b, int64_t c), a, b, c)
EVENT(rmw_take_response, (P a, P b, int64_t c, int64_t d, bool e), a, b, c, d, e)
EVENT(rcl_timer_init, (P a, int64_t b), a, b)
EVENT(rclcpp_timer_callback_added, (P a, P b), a, b)
EVENT(rclcpp_timer_link_node, (P a, P b), a, b)
EVENT(rclcpp_callback_register, (P a, S b), a, b)
EVENT(callback_start, (P a, bool b), a, b)
EVENT(callback_end, (P a), a)
EVENT(rclcpp_executor_get_next_ready, (void))
EVENT(rclcpp_executor_wait_for_work, (int64_t a), a)
EVENT(rclcpp_executor_execute, (P a), a)
EVENT(rclcpp_ipb_to_subscription, (P a, P b), a, b)
EVENT(rclcpp_buffer_to_ipb, (P a, P b), a, b)
EVENT(rclcpp_construct_ring_buffer, (P a, uint64_t b), a, b)
EVENT(rclcpp_ring_buffer_enqueue, (P a, uint64_t b, uint64_t c, bool d), a, b, c, d)
EVENT(rclcpp_ring_buffer_dequeue, (P a, uint64_t b, uint64_t c), a, b, c)
EVENT(rclcpp_ring_buffer_clear, (P a), a)

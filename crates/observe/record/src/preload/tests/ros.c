// Imitations of ROS 2 functions, in one library. Each counts its calls. Functions with results or
// many arguments also check the arguments. HUMBLE leaves out functions that later distributions
// added.
#include <stdbool.h>
#include <stdint.h>

uint64_t calls, damaged;

#define TRACE(event, ...)                                                                          \
	void ros_trace_##event(__VA_ARGS__)                                                        \
	{                                                                                          \
		__atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);                                   \
	}

TRACE(rcl_init, void *c)
TRACE(rcl_node_init, void *n, void *r, const char *name, const char *space)
TRACE(rcl_publisher_init, void *p, void *n, void *r, const char *topic, uint64_t depth)
TRACE(callback_start, void *c, bool intra)
TRACE(callback_end, void *c)
TRACE(rmw_take, void *s, void *m, int64_t source, bool taken)
TRACE(rcl_take, void *m)
#ifdef HUMBLE
TRACE(rmw_publish, void *m)
#else
TRACE(rmw_publish, void *p, void *m, int64_t source)
TRACE(rclcpp_intra_publish, void *p, void *m)
TRACE(do_rclcpp_callback_register, void *c, const char *symbol)

bool ros_trace_enabled_callback_start(void)
{
	return false;
}

bool session; // whether LTTng wants the symbols
bool ros_trace_enabled_rclcpp_callback_register(void)
{
	return session;
}

// Has more arguments than there are registers, as a later version might.
void ros_trace_rclcpp_ring_buffer_enqueue(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e,
					  uint64_t f, uint64_t g, uint64_t h, uint64_t i)
{
	calls++;
	damaged += a != 1 || b != 2 || c != 3 || d != 1 || e != 5 || f != 6 || g != 7 || h != 8 ||
		   i != 9;
}
#endif

int rcl_timer_call_with_info(void *timer, void *info)
{
	calls++;
	return timer && info ? 41 : 0;
}

int rcl_timer_call(void *timer)
{
	return rcl_timer_call_with_info(timer, &calls) + 1;
}

int rmw_publish(void *publisher, void *message, void *allocation)
{
#ifdef HUMBLE
	ros_trace_rmw_publish(message);
#else
	ros_trace_rmw_publish(publisher, message, 77);
#endif
	return allocation == &calls ? 43 : 0;
}

struct service_info {
	int64_t source, received;
	int8_t guid[16];
	int64_t sequence;
};

int rmw_take_request(void *service, struct service_info *info, void *request, bool *taken)
{
	calls++;
	info->sequence = 9;
	info->guid[0] = 5;
	*taken = true;
	return request == service ? 44 : 0;
}

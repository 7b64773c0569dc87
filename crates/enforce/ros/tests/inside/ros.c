// Imitations of the functions of ROS 2 that the library calls and replaces. Each publication is a
// line in a file: topic, number of the message, how it was published, process.
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ros.h"

struct impl {
	bool is_valid;
	char topic[64], node[64];
};

static int log_fd = -1;
static bool is_shut;

static void note(const struct impl *impl, uint64_t number, char how)
{
	char line[128];
	int length;

	if (log_fd < 0)
		log_fd = open(getenv("LOG"), O_WRONLY | O_APPEND | O_CREAT, 0600);
	length = snprintf(line, sizeof(line), "%s %lu %c %d\n", impl->topic, number, how, getpid());
	if (write(log_fd, line, length) != length)
		abort();
}

int rcl_publisher_init(struct publisher *publisher, struct node *node, const void *type,
		       const char *topic, void *options)
{
	(void)type, (void)options;
	publisher->impl = calloc(1, sizeof(struct impl));
	publisher->impl->is_valid = true;
	strcpy(publisher->impl->topic, topic);
	strcpy(publisher->impl->node, node->name);
	return 0;
}

int rcl_publisher_fini(struct publisher *publisher, void *node)
{
	(void)node;
	free(publisher->impl);
	publisher->impl = 0;
	return 0;
}

int rcl_shutdown(void *context)
{
	(void)context;
	is_shut = true;
	return 0;
}

bool rcl_publisher_is_valid(const struct publisher *publisher)
{
	return publisher->impl->is_valid && !is_shut;
}

const char *rcl_publisher_get_topic_name(const struct publisher *publisher)
{
	return publisher->impl->topic;
}

void *rcl_publisher_get_rmw_handle(const struct publisher *publisher)
{
	return publisher->impl;
}

const char *rcl_node_get_fully_qualified_name(const struct node *node)
{
	return node->name;
}

int rmw_serialize(const struct message *message, const void *type, struct serialized *to)
{
	(void)type;
	if (message->is_wrong)
		return 1;
	if (message->bytes != to->capacity) {
		to->bytes = to->allocator.reallocate(to->bytes, message->bytes, to->allocator.state);
		if (!to->bytes)
			return 10;
		to->capacity = message->bytes;
	}
	memcpy(to->bytes, &message->number, sizeof(message->number));
	to->length = message->bytes;
	return 0;
}

int rmw_publish_serialized_message(const struct impl *impl, const struct serialized *message,
				   void *allocation)
{
	uint64_t number;

	(void)allocation;
	memcpy(&number, message->bytes, sizeof(number));
	note(impl, number, 'h');
	return 0;
}

struct duration {
	uint64_t s, ns;
};

int rmw_publisher_wait_for_all_acked(const struct impl *impl, struct duration most)
{
	(void)impl, (void)most;
	return 0;
}

static int publish(const struct publisher *publisher, uint64_t number, char how)
{
	if (!rcl_publisher_is_valid(publisher))
		return 300;
	note(publisher->impl, number, how);
	return 0;
}

int rcl_publish(const struct publisher *publisher, const struct message *message, void *allocation)
{
	(void)allocation;
	return !message ? 11 : message->is_wrong ? 1 : publish(publisher, message->number, 'd');
}

int rcl_publish_serialized_message(const struct publisher *publisher,
				   const struct serialized *message, void *allocation)
{
	(void)allocation;
	return publish(publisher, *(uint64_t *)message->bytes, 's');
}

int rcl_publish_loaned_message(const struct publisher *publisher, struct message *message,
			       void *allocation)
{
	(void)allocation;
	return publish(publisher, message->number, 'l');
}

void rcutils_reset_error(void)
{
}

void ros_trace_rmw_publish(const void *publisher, const void *message, int64_t source)
{
	(void)publisher, (void)message, (void)source;
}

void ros_trace_rclcpp_intra_publish(const void *publisher, const void *message)
{
	(void)publisher, (void)message;
}

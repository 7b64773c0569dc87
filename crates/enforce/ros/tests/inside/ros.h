#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct publisher {
	struct impl *impl;
};

struct node {
	char name[64];
};

struct message {
	uint64_t number, bytes;
	bool is_wrong;
};

struct serialized {
	uint8_t *bytes;
	size_t length, capacity;
	struct {
		void *(*allocate)(size_t, void *);
		void (*deallocate)(void *, void *);
		void *(*reallocate)(void *, size_t, void *);
		void *(*zero_allocate)(size_t, size_t, void *);
		void *state;
	} allocator;
};

int rcl_publisher_init(struct publisher *, struct node *, const void *, const char *, void *);
int rcl_publisher_fini(struct publisher *, void *);
int rcl_shutdown(void *);
int rcl_publish(const struct publisher *, const struct message *, void *);
int rcl_publish_serialized_message(const struct publisher *, const struct serialized *, void *);
int rcl_publish_loaned_message(const struct publisher *, struct message *, void *);

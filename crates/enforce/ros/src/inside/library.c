// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// The library that holds a plan's outputs back inside the application. The application's processes
// preload it. It replaces the functions of rcl by which messages are published.
//
// A message of a held output is serialised into memory that was reserved with its publisher, and
// the caller returns. One thread sends it in its slot. Nothing is allocated after that. The items of
// a publisher form an array without a lock: a caller takes a free item, and marks it when it is
// whole. Only sending takes a lock, one for each publisher, as the middleware does.
//
// A throttled input works the same way, but a new message takes the place of the one that waits.
//
// Whatever does not go as planned, messages leave at once and in order: first the held ones, then
// the message at hand, by the original function and with its result.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/types.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

#include "lead.h"
#include "lineage.h"
#include "queue.h"

#define EXPORT __attribute__((visibility("default")))
#define SETTING "ONBEAT_HOLD" // directory with the page, the outputs and the pipe for reports
#define PATH_MAX_BYTES 4096
#define NAME_BYTES 256
#define MAX_PUBLISHERS 16
#define ITEMS 16 // messages that can wait at each publisher of an output
#define ITEM_BYTES (256UL << 10)
#define INPUT_ITEMS 4 // places at each publisher of a throttled input
#define INPUT_BYTES (4UL << 20)
#define STACK_BYTES (256UL << 10)
#define POLL_NS 50000000ULL // a change of the page takes effect within this time, or a cycle
#define STARVED_NS 20000000ULL
// A publisher that ends waits this long until reliable subscribers have what was held.
#define SETTLE_NS 500000000ULL

// ---- types of ROS 2
struct allocator {
	void *(*allocate)(size_t, void *);
	void (*deallocate)(void *, void *);
	void *(*reallocate)(void *, size_t, void *);
	void *(*zero_allocate)(size_t, size_t, void *);
	void *state;
};

struct serialized {
	__u8 *bytes;
	size_t length, capacity;
	struct allocator allocator;
};

struct rmw_time {
	__u64 s, ns;
};

struct rcl_publisher {
	void *impl;
};

typedef int publish_function(const struct rcl_publisher *, const void *, void *);

static struct {
	int (*publisher_init)(struct rcl_publisher *, void *, const void *, const char *, void *);
	int (*publisher_fini)(struct rcl_publisher *, void *);
	int (*shutdown)(void *);
	publish_function *publish, *publish_serialized, *publish_loaned;
	bool (*is_valid)(const struct rcl_publisher *);
	const char *(*topic_name)(const struct rcl_publisher *);
	void *(*rmw_handle)(const struct rcl_publisher *);
	const char *(*node_name)(const void *);
	int (*serialize)(const void *, const void *, struct serialized *);
	int (*send)(const void *, const struct serialized *, void *);
	int (*wait_for_all_acked)(const void *, struct rmw_time);
	void (*reset_error)(void);
	void (*trace_publish)(const void *, const void *, __s64);
	// Earlier distributions have no such function, and their trace_publish has other arguments.
	void *since_jazzy;
	bool is_known;
} ros;

static const struct {
	const char *name;
	void *to;
} functions[] = {
	{ "rcl_publisher_init", &ros.publisher_init },
	{ "rcl_publisher_fini", &ros.publisher_fini },
	{ "rcl_shutdown", &ros.shutdown },
	{ "rcl_publish", &ros.publish },
	{ "rcl_publish_serialized_message", &ros.publish_serialized },
	{ "rcl_publish_loaned_message", &ros.publish_loaned },
	{ "rcl_publisher_is_valid", &ros.is_valid },
	{ "rcl_publisher_get_topic_name", &ros.topic_name },
	{ "rcl_publisher_get_rmw_handle", &ros.rmw_handle },
	{ "rcl_node_get_fully_qualified_name", &ros.node_name },
	{ "rmw_serialize", &ros.serialize },
	{ "rmw_publish_serialized_message", &ros.send },
	{ "rmw_publisher_wait_for_all_acked", &ros.wait_for_all_acked },
	{ "rcutils_reset_error", &ros.reset_error },
	{ "ros_trace_rmw_publish", &ros.trace_publish },
	{ "ros_trace_rclcpp_intra_publish", &ros.since_jazzy },
};

// ---- items
enum { FREE, CLAIMED, READY };

struct item {
	__u32 state;
	__u64 sequence;
	struct waiting waiting;
	__s64 source;
	size_t length, capacity;
	__u8 *bytes;
	struct serialized message; // of the bytes, while they are sent
};

// A record of ../report.rs.
struct record {
	__u64 sequence;
	__s64 source, arrival, start, end, slot_start, cycle, born;
	__u16 output, slot;
	__u32 flags, bytes, lost;
};
_Static_assert(sizeof(struct record) == 80, "the owner reads records of 80 bytes");

enum {
	FLAG_LATE = 1,
	FLAG_DROPPED = 2,
	FLAG_REPLACED = 4,
	FLAG_PASSED = 8,
	FLAG_FAILED = 16,
	FLAG_READY = 32,
	FLAG_STOPPED = 64,
	FLAG_BY_ARRIVAL = 128,
	FLAG_NOT_HELD = 256,
};

enum policy { CARRY, DROP, STOP };

struct output {
	int number;
	bool is_input; // throttled
	int behind; // how many inputs of the plan come before this one; 0: none, or an output
	enum policy policy;
	char node[NAME_BYTES], topic[NAME_BYTES];
};

struct publisher {
	void *impl; // 0: this place is free
	const void *type, *rmw;
	int output;
	bool is_input;
	enum policy policy;
	bool is_new;	  // not reported yet
	__u32 held;	  // items that have not left
	__u64 next;	  // sequence number of the next item
	__u64 reported;
	__u64 sent_at; // when the latest item left; 0: none has
	pthread_mutex_t sending;
	int places;
	struct item items[ITEMS];
	// Of the thread:
	struct schedule schedule; // cycle 0: none read yet
	struct sequence sequence;
	bool has_last;
	__s64 last;	   // cycle in which the last item of an input left
	__s64 expected_at; // the slot for which the thread wakes up although nothing waits; 0: none
};

// The state of this process. The kernel clears it in a child made by fork, which has no thread. So
// the child holds nothing, and its copies of held messages never leave.
static struct state {
	__u64 *page;
	int reports;
	__u32 lost; // reports
	const __u64 *lineage;
	int lineage_socket; // on which the table of lineage may still come
	bool has_ended;
	bool has_stopped; // an output was late, and the policy is to stop
	__u32 news; // futex of the thread
	__u64 wakes_at; // when the thread runs next; ~0: when there is news
	int behind; // of the outputs published here, the least
	int publisher_count;
	__u64 last_source;
	int output_count;
	struct output outputs[MAX_PUBLISHERS];
	struct publisher publishers[MAX_PUBLISHERS];
} *process;

static pthread_once_t is_set_up = PTHREAD_ONCE_INIT, has_begun = PTHREAD_ONCE_INIT;

static __u64 now_of(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * 1000000000ULL + now.tv_nsec;
}

// ---- originals
static void *rcl_of(void *function)
{
	Dl_info info;

	// The library stays loaded, because we keep addresses.
	if (!function || !dladdr(function, &info) || !info.dli_fname)
		return 0;
	return dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

// Finds rcl: behind this library, or among the libraries of the caller's library. Python loads the
// libraries of ROS 2 so that no other library sees them.
static void *find_rcl(const void *caller)
{
	void *found = dlsym(RTLD_NEXT, "rcl_publisher_init"), *own, *rcl;
	Dl_info info;

	if (!found && dladdr(caller, &info) && info.dli_fname) {
		own = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
		if (own) {
			found = dlsym(own, "rcl_publisher_init");
			dlclose(own);
		}
	}
	rcl = rcl_of(found);
	return found && rcl ? rcl : 0;
}

static void look_up(const void *caller)
{
	void *rcl, *found;

	if (__atomic_load_n(&ros.is_known, __ATOMIC_ACQUIRE))
		return;
	rcl = find_rcl(caller);
	if (!rcl)
		return;
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		found = dlsym(rcl, functions[i].name);
		__atomic_store_n((void **)functions[i].to, found, __ATOMIC_RELAXED);
	}
	__atomic_store_n(&ros.is_known, true, __ATOMIC_RELEASE);
}

static bool can_hold(void)
{
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
		if (!*(void **)functions[i].to)
			return false;
	return true;
}

// ---- reports
static void report(struct record record)
{
	if (process->reports < 0)
		return;
	record.lost = __atomic_exchange_n(&process->lost, 0, __ATOMIC_RELAXED);
	if (write(process->reports, &record, sizeof(record)) != sizeof(record))
		__atomic_fetch_add(&process->lost, record.lost + 1, __ATOMIC_RELAXED);
}

static void wake(void)
{
	__atomic_fetch_add(&process->news, 1, __ATOMIC_RELEASE);
	syscall(SYS_futex, &process->news, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
}

// ---- sending
static void lock(struct publisher *publisher)
{
	if (pthread_mutex_lock(&publisher->sending) == EOWNERDEAD)
		pthread_mutex_consistent(&publisher->sending);
}

static void unlock(struct publisher *publisher)
{
	pthread_mutex_unlock(&publisher->sending);
}

// Takes an item that waits. Fails if another thread has taken it.
static bool take(struct item *item)
{
	__u32 ready = READY;

	return __atomic_compare_exchange_n(&item->state, &ready, CLAIMED, false, __ATOMIC_ACQ_REL,
					   __ATOMIC_RELAXED);
}

static bool is_ready(const struct item *item)
{
	return __atomic_load_n(&item->state, __ATOMIC_ACQUIRE) == READY;
}

static struct item *first_item(struct publisher *publisher)
{
	struct item *first = 0;

	for (int i = 0; i < ITEMS; i++) {
		struct item *item = &publisher->items[i];

		if (is_ready(item) && (!first || item->sequence < first->sequence))
			first = item;
	}
	return first;
}

static struct record record_of(struct publisher *publisher, const struct item *item, __u32 flags)
{
	return (struct record){
		.sequence = __atomic_fetch_add(&publisher->reported, 1, __ATOMIC_RELAXED),
		.source = item->source,
		.arrival = item->waiting.arrival,
		.output = publisher->output,
		.flags = flags,
		.bytes = item->length,
	};
}

// Frees an item that was taken, and reports it.
static void free_item(struct publisher *publisher, struct item *item, struct record record)
{
	__atomic_store_n(&item->state, FREE, __ATOMIC_RELEASE);
	__atomic_fetch_sub(&publisher->held, 1, __ATOMIC_RELEASE);
	report(record);
}

static void describe(struct record *record, const struct publisher *publisher,
		     const struct item *item, const struct due *due)
{
	record->cycle = due->cycle;
	record->slot = due->opening.slot;
	record->slot_start = due->opening.start;
	if (publisher->is_input)
		return;
	record->born = item->waiting.born;
	record->flags |= (item->waiting.born ? 0 : FLAG_BY_ARRIVAL) | (due->late ? FLAG_LATE : 0);
}

// Shows recorders which callback published the message, and when. The address plus 1 says that the
// application holds the message (see `Holder` in onbeat-trace). The recorder sees the address itself
// when the message is sent. The time 0 says that the message is discarded.
static void trace_held(const struct publisher *publisher, const struct item *item, __s64 source)
{
	ros.trace_publish(publisher->rmw, (const char *)&item->message + 1, source);
}

// Sends an item that was taken. The publisher is locked.
static void send_item(struct publisher *publisher, struct item *item, const struct due *due,
		      __u32 flags)
{
	struct record record = record_of(publisher, item, flags);

	if (due)
		describe(&record, publisher, item, due);
	item->message = (struct serialized){ .bytes = item->bytes,
					     .length = item->length,
					     .capacity = item->capacity };
	record.start = now_of(CLOCK_MONOTONIC);
	if (ros.send(publisher->rmw, &item->message, 0)) {
		record.flags |= FLAG_FAILED;
		ros.reset_error();
	}
	record.end = now_of(CLOCK_MONOTONIC);
	__atomic_store_n(&publisher->sent_at, record.end, __ATOMIC_RELAXED);
	free_item(publisher, item, record);
}

static void discard(struct publisher *publisher, struct item *item, const struct due *due,
		    __u32 flags)
{
	struct record record = record_of(publisher, item, flags | FLAG_DROPPED);

	if (due) {
		describe(&record, publisher, item, due);
		record.slot = 0;
		record.slot_start = 0;
	}
	trace_held(publisher, item, 0);
	free_item(publisher, item, record);
}

static __u32 held_by(struct publisher *publisher)
{
	return __atomic_load_n(&publisher->held, __ATOMIC_ACQUIRE);
}

// Sends all items of a publisher at once, in order. The publisher is locked.
static void send_all(struct publisher *publisher)
{
	struct item *item;

	while ((item = first_item(publisher)))
		if (take(item))
			send_item(publisher, item, 0, FLAG_PASSED);
}

static void empty(struct publisher *publisher)
{
	if (!held_by(publisher))
		return;
	lock(publisher);
	send_all(publisher);
	unlock(publisher);
}

// Waits until subscribers have acknowledged what a publisher has sent lately, until a time at most. The
// middleware forgets the rest when the publisher ends.
static void settle(struct publisher *publisher, __u64 until)
{
	__u64 sent_at = __atomic_load_n(&publisher->sent_at, __ATOMIC_RELAXED),
	      now = now_of(CLOCK_MONOTONIC);
	struct rmw_time most = { .ns = until > now ? until - now : 0 };

	if (!__atomic_load_n(&publisher->impl, __ATOMIC_ACQUIRE) || !sent_at ||
	    sent_at + SETTLE_NS < now)
		return;
	if (ros.wait_for_all_acked(publisher->rmw, most))
		ros.reset_error();
}

// Sends all items, and waits for their acknowledgements.
static void flush_all(void)
{
	__u64 until = now_of(CLOCK_MONOTONIC) + SETTLE_NS;

	for (int i = 0; process && i < MAX_PUBLISHERS; i++)
		empty(&process->publishers[i]);
	for (int i = 0; process && i < MAX_PUBLISHERS; i++)
		settle(&process->publishers[i], until);
}

static void at_exit(void)
{
	if (!process || !process->page)
		return;
	__atomic_store_n(&process->has_ended, true, __ATOMIC_SEQ_CST);
	flush_all();
}

static bool passes_now(__u64 now)
{
	return __atomic_load_n(&process->has_ended, __ATOMIC_RELAXED) ||
	       __atomic_load_n(&process->has_stopped, __ATOMIC_RELAXED) ||
	       passes(process->page, now);
}

// Reports whether the thread should have run half a cycle ago. In short cycles it may be late by
// more, but by no more than two cycles.
static bool is_starved(__u64 now)
{
	__u64 wakes_at = __atomic_load_n(&process->wakes_at, __ATOMIC_RELAXED),
	      cycle = word(process->page, WORD_CYCLE), most = cycle / 2;

	if (most < STARVED_NS)
		most = 2 * cycle < STARVED_NS ? 2 * cycle : STARVED_NS;
	return now > wakes_at && now - wakes_at > most;
}

// ---- the thread
static struct lead lead = { .ns = FIRST_LEAD_NS };

// Finds the cycles of items that have arrived.
static void place_items(struct publisher *publisher)
{
	for (;;) {
		struct item *first = 0;

		for (int i = 0; i < ITEMS; i++) {
			struct item *item = &publisher->items[i];

			if (is_ready(item) && !item->waiting.is_placed &&
			    (!first || item->sequence < first->sequence))
				first = item;
		}
		if (!first)
			return;
		place(&publisher->schedule, &publisher->sequence, &first->waiting);
	}
}

// Reports whether `later` may leave before `earlier`, which was published before it: only if both
// are known to belong to other executions.
static bool may_overtake(const struct schedule *schedule, const struct item *later,
			 const struct item *earlier)
{
	__s64 born = later->waiting.born;

	return born && earlier->waiting.born &&
	       cycle_begun(schedule, born) < cycle_begun(schedule, earlier->waiting.born);
}

// Returns the item of an output that leaves next: in the order of slots, and in one slot in the
// order of publication. An item whose slot comes first takes the items along that it may not
// overtake.
static struct item *next_output(struct publisher *publisher, __s64 now, struct due *due)
{
	struct item *next = 0, *first;

	place_items(publisher);
	for (int i = 0; i < ITEMS; i++) {
		struct item *item = &publisher->items[i];
		struct due of;

		if (!is_ready(item) || !item->waiting.is_placed)
			continue;
		of = due_of(&publisher->schedule, &item->waiting, now);
		if (!next || of.opening.start < due->opening.start ||
		    (of.opening.start == due->opening.start && item->sequence < next->sequence)) {
			next = item;
			*due = of;
		}
	}
	first = next;
	for (int i = 0; next && i < ITEMS; i++) {
		struct item *item = &publisher->items[i];

		if (is_ready(item) && item->sequence < first->sequence &&
		    !may_overtake(&publisher->schedule, next, item))
			first = item;
	}
	if (first != next) {
		struct opening opening = due->opening;

		*due = due_of(&publisher->schedule, &first->waiting, now);
		due->opening = opening;
	}
	return first;
}

// Discards the items of a throttled input except the latest.
static void discard_replaced(struct publisher *publisher, __u64 latest)
{
	for (int i = 0; i < ITEMS; i++) {
		struct item *item = &publisher->items[i];

		if (!is_ready(item) || item->sequence >= latest || !take(item))
			continue;
		if (item->sequence < latest) {
			discard(publisher, item, 0, FLAG_REPLACED);
			continue;
		}
		// Another thread has put a later message into this place meanwhile.
		__atomic_store_n(&item->state, READY, __ATOMIC_RELEASE);
		wake();
	}
}

static struct item *next_input(struct publisher *publisher, __s64 now, struct due *due)
{
	struct item *latest = 0;

	for (int i = 0; i < ITEMS; i++) {
		struct item *item = &publisher->items[i];

		if (is_ready(item) && (!latest || item->sequence > latest->sequence))
			latest = item;
	}
	if (!latest)
		return 0;
	discard_replaced(publisher, latest->sequence);
	*due = due_of_input(&publisher->schedule, publisher->has_last, publisher->last, now);
	return latest;
}

static struct opening any_opening(const struct schedule *schedule, __s64 now)
{
	return opening_at(schedule, now, -MAX_TIME_NS);
}

// Notes that an item has left in a slot. The next one probably comes before the next slot.
static void left_in_slot(struct publisher *publisher, const struct due *due, __s64 now)
{
	__s64 end = due->opening.end > now ? due->opening.end : now;

	publisher->has_last = true;
	publisher->last = due->opening.cycle;
	publisher->expected_at = any_opening(&publisher->schedule, end).start;
}

// Sends or discards an item if that is due. Returns false if it has to wait.
static bool serve_item(struct publisher *publisher, struct item *item, const struct due *due,
		       __s64 now)
{
	// An execution that was in time did not overrun, even if nothing ran here in its slot.
	bool is_judged = due->late && !due->overslept && word(process->page, WORD_STATE) == SHAPE;
	bool drops = is_judged && publisher->policy == DROP;
	bool stops = is_judged && publisher->policy == STOP;

	if (due->opening.start > now && !drops && !stops)
		return false;
	if (!take(item))
		return true;
	if (drops) {
		discard(publisher, item, due, 0);
		return true;
	}
	if (stops) {
		__atomic_store_n(&process->has_stopped, true, __ATOMIC_RELEASE);
		// The other publishers' items leave, too.
		wake();
	}
	send_item(publisher, item, due, stops ? FLAG_STOPPED : 0);
	left_in_slot(publisher, due, now);
	return true;
}

// Returns how many of the plan's inputs leave before the first message of this process.
static int inputs_before(void)
{
	return __atomic_load_n(&process->behind, __ATOMIC_RELAXED);
}

// Returns how long before a slot the thread wakes up.
static __u64 lead_ns(void)
{
	return inputs_before() ? 0 : lead.ns;
}

// Returns the slot before which the thread wakes up because an item will probably come.
static __u64 expected(struct publisher *publisher, __u64 now)
{
	if (publisher->expected_at <= (__s64)(now + lead_ns())) {
		publisher->expected_at = 0;
		return ~0ULL;
	}
	return publisher->expected_at;
}

// Sends what is due at a publisher. Returns the time at which its next item is due, and ~0 if it has
// none.
static __u64 serve(struct publisher *publisher, __u64 now)
{
	struct schedule *schedule = &publisher->schedule, read;
	__u64 next = ~0ULL;
	struct item *item;
	struct due due;

	if (read_schedule(process->page, publisher->output, now, &read))
		*schedule = read;
	lock(publisher);
	for (;;) {
		now = now_of(CLOCK_MONOTONIC);
		if (passes_now(now)) {
			send_all(publisher);
			break;
		}
		if (!schedule->cycle) {
			next = now + POLL_NS;
			break;
		}
		item = publisher->is_input ? next_input(publisher, now, &due) :
					     next_output(publisher, now, &due);
		if (!item)
			break;
		if (!serve_item(publisher, item, &due, now)) {
			next = due.opening.start;
			break;
		}
	}
	unlock(publisher);
	return next;
}

static void announce(struct publisher *publisher)
{
	struct record ready = { .arrival = now_of(CLOCK_MONOTONIC),
				.output = publisher->output,
				.flags = FLAG_READY };

	if (__atomic_load_n(&publisher->impl, __ATOMIC_ACQUIRE) &&
	    __atomic_exchange_n(&publisher->is_new, false, __ATOMIC_ACQ_REL))
		report(ready);
}

// Returns when the thread wakes up although nothing is due: to see a change of the page, and that
// the owner has been silent for two cycles.
static __u64 check_at(__u64 now)
{
	__u64 cycle = word(process->page, WORD_CYCLE), silent, poll;

	silent = word(process->page, WORD_HEARTBEAT) + 2 * cycle + 1;
	poll = now + (cycle > POLL_NS && cycle <= MAX_CYCLE_NS ? cycle : POLL_NS);
	return silent > now && silent < poll ? silent : poll;
}

// Waits until shortly before `next`, and then for `next` itself. Nothing is checked meanwhile unless
// an item waits.
static void wait_for(__u32 news, __u64 next, __u64 now, bool is_held)
{
	__u64 wake_at = next - lead_ns(), until = is_held ? check_at(now) : ~0ULL;
	bool is_slot = wake_at <= until && next != ~0ULL;
	struct timespec time;

	if (wake_at <= now) {
		while (now_of(CLOCK_MONOTONIC) < next)
			;
		return;
	}
	if (is_slot)
		until = wake_at;
	// See needs_wake().
	__atomic_store_n(&process->wakes_at, until, __ATOMIC_SEQ_CST);
	time.tv_sec = until / 1000000000ULL;
	time.tv_nsec = until % 1000000000ULL;
	if (syscall(SYS_futex, &process->news, FUTEX_WAIT_BITSET_PRIVATE, news,
		    until == ~0ULL ? 0 : &time, 0, FUTEX_BITSET_MATCH_ANY) &&
	    errno == ETIMEDOUT && is_slot)
		record_delay(&lead, now_of(CLOCK_MONOTONIC) - until);
}

// Sends what is due at all publishers, in the order of the plan. Returns the time at which the thread
// has to look again.
static __u64 serve_all(__u64 now, bool *is_held)
{
	__u64 next = ~0ULL;

	for (int number = 0; number < MAX_OUTPUTS; number++) {
		for (int i = 0; i < MAX_PUBLISHERS; i++) {
			struct publisher *publisher = &process->publishers[i];
			__u64 due;

			if (publisher->output != number)
				continue;
			due = held_by(publisher) ? serve(publisher, now) : ~0ULL;
			announce(publisher);
			*is_held |= due != ~0ULL;
			if (due == ~0ULL)
				due = expected(publisher, now);
			next = due < next ? due : next;
		}
	}
	return next;
}

// Inputs leave at the same time, and latency counts from the first one. So the owner gives the threads
// of later ones lower priorities, by their names, and they do not spin: the first one would make them
// late anyway.
static void name_thread(int behind)
{
	char name[16];

	snprintf(name, sizeof(name), behind ? "onbeat-hold-%d" : "onbeat-hold", behind);
	prctl(PR_SET_NAME, name);
}

static void *run(void *nothing)
{
	int behind = -1;

	prctl(PR_SET_TIMERSLACK, 1);
	for (;;) {
		__u32 news = __atomic_load_n(&process->news, __ATOMIC_ACQUIRE);
		__u64 now = now_of(CLOCK_MONOTONIC), next;
		bool is_held = false;

		if (behind != inputs_before()) {
			behind = inputs_before();
			name_thread(behind);
		}
		// See needs_wake().
		__atomic_store_n(&process->wakes_at, now, __ATOMIC_SEQ_CST);
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		process->lineage_socket = take_lineage(process->lineage_socket, &process->lineage);
		next = serve_all(now, &is_held);
		wait_for(news, next, now, is_held);
	}
	return nothing;
}

// ---- setting up
static bool read_outputs(const char *directory, struct state *state)
{
	char path[PATH_MAX_BYTES];
	FILE *file;
	int count = 0;

	snprintf(path, sizeof(path), "%s/outputs", directory);
	file = fopen(path, "re");
	if (!file)
		return false;
	while (count < MAX_PUBLISHERS) {
		struct output *output = &state->outputs[count];
		char kind[8], policy[8];

		if (fscanf(file, "%d %7s %7s %255s %255s", &output->number, kind, policy,
			   output->node, output->topic) != 5)
			break;
		output->is_input = !strcmp(kind, "input");
		output->policy = !strcmp(policy, "drop") ? DROP :
				 !strcmp(policy, "stop") ? STOP :
							   CARRY;
		if (output->number >= 0 && output->number < MAX_OUTPUTS)
			count++;
	}
	fclose(file);
	state->output_count = count;
	state->behind = MAX_OUTPUTS;
	for (int i = 0; i < count; i++) {
		struct output *output = &state->outputs[i];

		for (int j = 0; output->is_input && j < count; j++)
			output->behind += state->outputs[j].is_input &&
					  state->outputs[j].number < output->number;
	}
	return count;
}

static __u64 *map_page(const char *directory)
{
	char path[PATH_MAX_BYTES];
	struct stat status;
	__u64 *page;
	int fd;

	snprintf(path, sizeof(path), "%s/page", directory);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return 0;
	// An access beyond the end of the file would be a fault.
	page = fstat(fd, &status) || status.st_size < PAGE_BYTES ?
		       MAP_FAILED :
		       mmap(0, PAGE_BYTES, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
	close(fd);
	return page != MAP_FAILED && word(page, WORD_MAGIC) == PAGE_MAGIC ? page : 0;
}

static bool start_thread(void)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	pthread_t thread;
	bool started;

	sigfillset(&all);
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	started = !pthread_create(&thread, &attributes, run, 0);
	pthread_sigmask(SIG_SETMASK, &before, 0);
	pthread_attr_destroy(&attributes);
	return started;
}

static void make_locks(struct state *state)
{
	pthread_mutexattr_t kind;

	pthread_mutexattr_init(&kind);
	// In-process subscriptions may run code of the application while a message is being sent, and
	// that code may publish.
	pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutexattr_setprotocol(&kind, PTHREAD_PRIO_INHERIT);
	pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
	for (int i = 0; i < MAX_PUBLISHERS; i++)
		pthread_mutex_init(&state->publishers[i].sending, &kind);
	pthread_mutexattr_destroy(&kind);
}

static void set_up(void)
{
	const char *directory = getenv(SETTING);
	char path[PATH_MAX_BYTES];
	struct state *state;
	__u64 *page;

	if (!directory || !can_hold())
		return;
	state = mmap(0, sizeof(*state), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (state == MAP_FAILED)
		return;
	page = map_page(directory);
	if (!page || madvise(state, sizeof(*state), MADV_WIPEONFORK) ||
	    !read_outputs(directory, state)) {
		munmap(state, sizeof(*state));
		return;
	}
	// Opened for reading too, so that a write without a reader is no signal.
	snprintf(path, sizeof(path), "%s/reports", directory);
	state->reports = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
	state->lineage_socket = ask_for_lineage(directory);
	make_locks(state);
	state->page = page;
	process = state;
}

// Begins to work in a process that publishes a held output. If that fails, messages are not held.
static void begin(void)
{
	if (!start_thread() || atexit(at_exit))
		__atomic_store_n(&process->has_ended, true, __ATOMIC_RELEASE);
}

// ---- publishers
static struct publisher *find(const void *impl)
{
	struct state *state = process;

	if (!state || !impl || !__atomic_load_n(&state->publisher_count, __ATOMIC_ACQUIRE))
		return 0;
	for (int i = 0; i < MAX_PUBLISHERS; i++)
		if (__atomic_load_n(&state->publishers[i].impl, __ATOMIC_ACQUIRE) == impl)
			return &state->publishers[i];
	return 0;
}

// Sends what is left of a publisher that ends, and forgets the publisher.
static void forget(const void *impl)
{
	struct publisher *publisher = find(impl);

	if (!publisher)
		return;
	empty(publisher);
	settle(publisher, now_of(CLOCK_MONOTONIC) + SETTLE_NS);
	lock(publisher);
	send_all(publisher);
	__atomic_store_n(&publisher->impl, 0, __ATOMIC_RELEASE);
	unlock(publisher);
	__atomic_fetch_sub(&process->publisher_count, 1, __ATOMIC_RELEASE);
}

static bool reserve(struct publisher *publisher, int places, size_t each)
{
	__u8 *bytes;

	if (publisher->items[0].bytes && publisher->items[0].capacity == each)
		return true;
	bytes = mmap(0, places * each, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (bytes == MAP_FAILED)
		return false;
	// The place had a publisher of the other kind.
	if (publisher->items[0].bytes)
		munmap(publisher->items[0].bytes,
		       publisher->places * publisher->items[0].capacity);
	for (int i = 0; i < places; i++) {
		publisher->items[i].bytes = bytes + i * each;
		publisher->items[i].capacity = each;
	}
	publisher->places = places;
	return true;
}

static void take_over(void *impl, const void *type, const void *rmw, const struct output *output)
{
	static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;
	struct publisher *publisher = 0;

	pthread_mutex_lock(&adding);
	for (int i = 0; i < MAX_PUBLISHERS && !publisher; i++)
		if (!process->publishers[i].impl)
			publisher = &process->publishers[i];
	if (output->behind < process->behind)
		__atomic_store_n(&process->behind, output->behind, __ATOMIC_RELAXED);
	pthread_once(&has_begun, begin);
	if (publisher && (output->is_input ? reserve(publisher, INPUT_ITEMS, INPUT_BYTES) :
					     reserve(publisher, ITEMS, ITEM_BYTES))) {
		lock(publisher);
		publisher->type = type;
		publisher->rmw = rmw;
		publisher->output = output->number;
		publisher->is_input = output->is_input;
		publisher->policy = output->policy;
		publisher->schedule.cycle = 0;
		publisher->sent_at = 0;
		publisher->sequence = (struct sequence){};
		publisher->has_last = false;
		publisher->is_new = true;
		unlock(publisher);
		__atomic_store_n(&publisher->impl, impl, __ATOMIC_RELEASE);
		__atomic_fetch_add(&process->publisher_count, 1, __ATOMIC_RELEASE);
		wake();
	}
	pthread_mutex_unlock(&adding);
}

static void add(struct rcl_publisher *publisher, const void *node, const void *type)
{
	const char *topic = ros.topic_name(publisher), *name = ros.node_name(node);
	const void *rmw = ros.rmw_handle(publisher);

	if (!topic || !name || !rmw)
		return;
	for (int i = 0; i < process->output_count; i++) {
		struct output *output = &process->outputs[i];

		if (!strcmp(output->topic, topic) && !strcmp(output->node, name)) {
			take_over(publisher->impl, type, rmw, output);
			return;
		}
	}
}

// ---- holding
static void *no_memory(size_t bytes, void *state)
{
	(void)bytes, (void)state;
	return 0;
}

static void *no_zeros(size_t count, size_t bytes, void *state)
{
	(void)count, (void)bytes, (void)state;
	return 0;
}

static void keep(void *bytes, void *state)
{
	(void)bytes, (void)state;
}

// The middleware may give a buffer the size of its message. It stays the same memory.
static void *resize(void *bytes, size_t size, void *of)
{
	const struct item *item = of;

	return bytes == item->bytes && size <= item->capacity ? bytes : 0;
}

static bool fill(struct publisher *publisher, struct item *item, const void *message,
		 const struct serialized *serialized)
{
	struct serialized to = { item->bytes, 0, item->capacity,
				 { no_memory, keep, resize, no_zeros, item } };

	if (serialized) {
		if (!serialized->bytes || serialized->length > item->capacity)
			return false;
		memcpy(item->bytes, serialized->bytes, serialized->length);
		item->length = serialized->length;
		return true;
	}
	if (ros.serialize(message, publisher->type, &to)) {
		ros.reset_error();
		return false;
	}
	item->length = to.length;
	return to.bytes == item->bytes && to.length <= item->capacity;
}

static struct item *claim(struct publisher *publisher)
{
	for (int i = 0; i < publisher->places; i++) {
		__u32 free = FREE;

		if (__atomic_compare_exchange_n(&publisher->items[i].state, &free, CLAIMED, false,
						__ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			return &publisher->items[i];
	}
	return 0;
}

// Returns the present time. No two messages of this process have the same one.
static __s64 own_source(void)
{
	__u64 now = now_of(CLOCK_REALTIME),
	      last = __atomic_load_n(&process->last_source, __ATOMIC_RELAXED), next;

	do
		next = now > last ? now : last + 1;
	while (!__atomic_compare_exchange_n(&process->last_source, &last, next, false,
					    __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	return next;
}

// Reports whether the thread must wake up for an item that has just become ready, because it does
// not wake up by itself before the next slot.
//
// The thread notes that it runs, and then looks at the items. The caller makes an item ready, and
// then looks at what the thread has noted. So at least one of the two sees the other.
//
// The caller reads the clock last: then a thread that runs has noted an earlier time.
static bool needs_wake(const struct publisher *publisher)
{
	struct schedule schedule;
	__u64 wakes_at, now;

	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	wakes_at = __atomic_load_n(&process->wakes_at, __ATOMIC_SEQ_CST);
	now = now_of(CLOCK_MONOTONIC);
	if (wakes_at <= now || wakes_at == ~0ULL || publisher->policy == STOP ||
	    !read_schedule(process->page, publisher->output, now, &schedule))
		return true;
	return any_opening(&schedule, now).start < (__s64)wakes_at;
}

// Holds a message. Fails if it does not fit.
static bool hold(struct publisher *publisher, const void *message,
		 const struct serialized *serialized)
{
	struct item *item = claim(publisher);
	__u64 never = ~0ULL, arrival, sequence;

	if (!item)
		return false;
	if (!fill(publisher, item, message, serialized)) {
		__atomic_store_n(&item->state, FREE, __ATOMIC_RELEASE);
		return false;
	}
	item->source = own_source();
	trace_held(publisher, item, item->source);
	arrival = now_of(CLOCK_MONOTONIC);
	item->waiting = (struct waiting){
		.arrival = arrival,
		.born = born_of(__atomic_load_n(&process->lineage, __ATOMIC_ACQUIRE), item->source),
	};
	sequence = __atomic_fetch_add(&publisher->next, 1, __ATOMIC_RELAXED);
	item->sequence = sequence;
	__atomic_fetch_add(&publisher->held, 1, __ATOMIC_RELEASE);
	__atomic_store_n(&item->state, READY, __ATOMIC_RELEASE);
	if (publisher->is_input)
		discard_replaced(publisher, sequence);
	if (needs_wake(publisher)) {
		__atomic_compare_exchange_n(&process->wakes_at, &never, arrival, false,
					    __ATOMIC_RELAXED, __ATOMIC_RELAXED);
		wake();
	}
	return true;
}

// Sends held messages, then the one at hand, by the original function and with its result.
static int at_once(struct publisher *publisher, publish_function *original,
		   const struct rcl_publisher *to, const void *message, void *allocation)
{
	int result;

	if (!held_by(publisher))
		return original(to, message, allocation);
	lock(publisher);
	send_all(publisher);
	result = original(to, message, allocation);
	unlock(publisher);
	return result;
}

// Sends a message at once. The owner counts the messages of a throttled input, which set the phase of
// cycles.
static int pass(struct publisher *publisher, publish_function *original,
		const struct rcl_publisher *to, const void *message, void *allocation, __u64 now)
{
	struct record record = { .arrival = now, .output = publisher->output, .flags = FLAG_PASSED };
	int result = at_once(publisher, original, to, message, allocation);

	if (publisher->is_input && message && !is_silent(process->page, now)) {
		record.start = now;
		record.end = now_of(CLOCK_MONOTONIC);
		report(record);
	}
	return result;
}

static int publish(publish_function *original, const struct rcl_publisher *to, const void *message,
		   void *allocation, bool is_serialized, bool can_wait)
{
	struct publisher *publisher = to ? find(to->impl) : 0;
	struct record record = { .flags = FLAG_NOT_HELD };
	__u64 now;

	if (!publisher)
		return original(to, message, allocation);
	now = now_of(CLOCK_MONOTONIC);
	if (passes_now(now) || !message || is_starved(now))
		return pass(publisher, original, to, message, allocation, now);
	if (!ros.is_valid(to)) {
		ros.reset_error();
		return at_once(publisher, original, to, message, allocation);
	}
	if (can_wait && hold(publisher, is_serialized ? 0 : message, is_serialized ? message : 0))
		return 0;
	record.output = publisher->output;
	record.arrival = now;
	report(record);
	return at_once(publisher, original, to, message, allocation);
}

// ---- the functions that callers reach
static int no_original(const struct rcl_publisher *publisher, const void *message, void *allocation)
{
	(void)publisher, (void)message, (void)allocation;
	return 1;
}

static publish_function *or_none(publish_function *original)
{
	return original ? original : no_original;
}

EXPORT int rcl_publisher_init(struct rcl_publisher *publisher, void *node, const void *type,
			      const char *topic, void *options)
{
	int result;

	look_up(__builtin_return_address(0));
	if (!ros.publisher_init)
		return 1;
	result = ros.publisher_init(publisher, node, type, topic, options);
	if (result || !publisher->impl)
		return result;
	// An id of a publisher that was never ended may come again.
	forget(publisher->impl);
	pthread_once(&is_set_up, set_up);
	if (process && process->page)
		add(publisher, node, type);
	return result;
}

EXPORT int rcl_publisher_fini(struct rcl_publisher *publisher, void *node)
{
	look_up(__builtin_return_address(0));
	if (publisher)
		forget(publisher->impl);
	return ros.publisher_fini ? ros.publisher_fini(publisher, node) : 1;
}

EXPORT int rcl_shutdown(void *context)
{
	int result;

	look_up(__builtin_return_address(0));
	flush_all();
	result = ros.shutdown ? ros.shutdown(context) : 1;
	// Another thread may have published meanwhile.
	flush_all();
	return result;
}

EXPORT int rcl_publish(const struct rcl_publisher *publisher, const void *message, void *allocation)
{
	look_up(__builtin_return_address(0));
	return publish(or_none(ros.publish), publisher, message, allocation, false, true);
}

EXPORT int rcl_publish_serialized_message(const struct rcl_publisher *publisher,
					  const void *message, void *allocation)
{
	look_up(__builtin_return_address(0));
	return publish(or_none(ros.publish_serialized), publisher, message, allocation, true, true);
}

// The memory of a loaned message belongs to the middleware, so the message cannot wait.
EXPORT int rcl_publish_loaned_message(const struct rcl_publisher *publisher, const void *message,
				      void *allocation)
{
	look_up(__builtin_return_address(0));
	return publish(or_none(ros.publish_loaned), publisher, message, allocation, false, false);
}

#ifdef TESTED
// Gives a test what the library computes from a page: for each item cycle, start, end, slot, late,
// overslept, and whether its cycle was inferred.
EXPORT bool onbeat_test_due(const __u64 *page, int output, const __s64 *arrivals, const __s64 *born,
			    int count, __s64 now, __s64 (*to)[7])
{
	struct sequence sequence = {};
	struct schedule schedule;

	if (!read_schedule(page, output, now, &schedule))
		return false;
	for (int i = 0; i < count; i++) {
		struct waiting item = { .arrival = arrivals[i], .born = born[i] };
		struct due due;

		place(&schedule, &sequence, &item);
		due = due_of(&schedule, &item, now);
		memcpy(to[i],
		       (__s64[7]){ due.cycle, due.opening.start, due.opening.end, due.opening.slot,
				   due.late, due.overslept, !item.born },
		       sizeof(to[i]));
	}
	return true;
}

// Gives a test the slot of a throttled input: cycle, start. `last` is -1 if none has left yet.
EXPORT bool onbeat_test_throttled(const __u64 *page, int output, __s64 last, __s64 now, __s64 *to)
{
	struct schedule schedule;
	struct due due;

	if (!read_schedule(page, output, now, &schedule))
		return false;
	due = due_of_input(&schedule, last >= 0, last, now);
	to[0] = due.opening.cycle;
	to[1] = due.opening.start;
	return true;
}

// Gives a test the lead after each delay.
EXPORT void onbeat_test_lead(const __u64 *delays, int count, __u64 *to)
{
	struct lead of = { .ns = FIRST_LEAD_NS };

	for (int i = 0; i < count; i++) {
		record_delay(&of, delays[i]);
		to[i] = of.ns;
	}
}
#endif

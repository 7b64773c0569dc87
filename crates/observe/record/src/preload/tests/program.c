// A program that calls the imitations: `program MODE`. It prints its actions, one per line.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct endpoint {
	const char *implementation;
	void *data;
	const char *name;
};
static struct endpoint own = { "rmw", 0, "/chatter" }, foreign = { "rmw", 0, "discovery" };

#ifdef LOCAL
// Loads the library like Python does: no other library sees it.
static int (*publish_function)(void *, void *, void *);
static void load(void)
{
	void *library = dlopen(LOCAL, RTLD_NOW | RTLD_LOCAL);
	*(void **)&publish_function = dlsym(library, "user_publish");
}
#define publish(number) publish_function(&own, (void *)(number), 0)
int main(void)
{
	uint64_t *calls;

	load();
	for (uintptr_t i = 1; i <= 10; i++)
		publish(i);
	calls = dlsym(dlopen(ROS, RTLD_NOW | RTLD_NOLOAD), "calls");
	printf("passed on %lu\n", *calls);
	return 0;
}
#else
extern uint64_t calls, damaged;
void ros_trace_rcl_init(void *);
void ros_trace_rcl_node_init(void *, void *, const char *, const char *);
void ros_trace_rcl_publisher_init(void *, void *, void *, const char *, uint64_t);
void ros_trace_callback_start(void *, bool);
void ros_trace_callback_end(void *);
void ros_trace_rmw_take(void *, void *, int64_t, bool);
int rcl_timer_call(void *);
int rcl_timer_call_with_info(void *, void *);
int rmw_publish(void *, void *, void *);
int rmw_take_request(void *, void *, void *, bool *);
#ifndef HUMBLE
extern bool session;
bool ros_trace_enabled_rclcpp_callback_register(void);
void ros_trace_do_rclcpp_callback_register(void *, const char *);
void ros_trace_rclcpp_ring_buffer_enqueue(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
					  uint64_t, uint64_t, uint64_t);
#endif

static int publish(uintptr_t number)
{
	return rmw_publish(&own, (void *)number, &calls);
}

// Calls every kind of function once.
static void sequence(void)
{
	struct {
		int64_t source, received;
		int8_t guid[16];
		int64_t sequence;
	} info = { 0 };
	bool taken = false;
	char text[400];
	// The layout is rcl's: a publisher points to its implementation, which begins with the requested
	// QoS profile.
	struct {
		uint32_t history;
		uint64_t depth;
		uint32_t reliability, durability;
		uint64_t deadline[2], lifespan[2];
		uint32_t liveliness;
		uint64_t lease[2];
	} qos = { 1, 10, 2, 1, { 0, 250000000 }, { 0 }, 3, { 9223372036, 854775807 } };
	void *publisher = &qos;

	memset(text, 'x', sizeof(text) - 1);
	text[0] = '/';
	text[399] = 0;
	ros_trace_rcl_init(0);
	ros_trace_rcl_node_init((void *)1, (void *)2, "talker", 0);
	ros_trace_rcl_publisher_init(&publisher, (void *)1, &own, text, 10);
	// The depth differs from the profile's, so the profile does not belong to this publisher.
	ros_trace_rcl_publisher_init(&publisher, (void *)1, &own, text, 11);
	// Any program may call this function with any argument.
	ros_trace_rcl_publisher_init((void *)3, (void *)1, &own, text, 12);
	ros_trace_callback_start((void *)6, true);
	printf("timer %d\n", rcl_timer_call((void *)5));
	printf("timer %d\n", rcl_timer_call_with_info((void *)5, &calls));
	printf("timer %d\n", rcl_timer_call((void *)5));
	printf("publish %d\n", publish(9));
	rmw_publish(&foreign, (void *)10, 0);
	ros_trace_rmw_take(&own, (void *)11, 78, true);
	printf("take %d %d\n", rmw_take_request(&own, &info, &own, &taken), taken);
#ifndef HUMBLE
	for (int i = 0; i < 2; i++) {
		if (ros_trace_enabled_rclcpp_callback_register())
			ros_trace_do_rclcpp_callback_register((void *)6, i ? "second" : "first");
		session = true;
	}
	ros_trace_rclcpp_ring_buffer_enqueue(1, 2, 3, 1, 5, 6, 7, 8, 9);
#endif
	ros_trace_callback_end((void *)6);
	printf("passed on %lu, damaged %lu\n", calls, damaged);
}

static void *few(void *unused)
{
	for (uintptr_t i = 1; i <= 10; i++)
		publish(i);
	return unused;
}

// Makes the kernel refuse process_vm_readv, and with `pipes` also pipe2.
static void refuse(bool pipes)
{
	struct sock_filter steps[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), // the call's number
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, pipes ? SYS_pipe2 : SYS_process_vm_readv, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(steps) / sizeof(steps[0]), steps };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		exit(1);
}

// From now on the kernel ends this process if it reads a thread's clock.
static void forbid_clocks(bool by_syscall)
{
	struct sock_filter steps[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), // the call's number
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_gettime, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(steps) / sizeof(steps[0]), steps };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    (by_syscall ? syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) :
			  prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)))
		exit(1);
}

#ifndef LOCAL
static void callbacks(void)
{
	for (int i = 0; i < 10; i++) {
		ros_trace_callback_start((void *)6, false);
		ros_trace_callback_end((void *)6);
	}
}

// Runs callbacks before and after it forbids to read clocks, or as a program started after that.
static void sandbox(char **argv)
{
	char *again[] = { argv[0], "callbacks", 0 };

	if (!strcmp(argv[2], "exec")) {
		forbid_clocks(false);
		execv(argv[0], again);
		exit(1);
	}
	callbacks();
	forbid_clocks(!strcmp(argv[2], "syscall"));
	callbacks();
}
#endif

// Starts 1,000 threads, 50 at a time.
static void threads(void)
{
	pthread_t thread[50];

	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 50; i++)
			pthread_create(&thread[i], 0, few, 0);
		for (int i = 0; i < 50; i++)
			pthread_join(thread[i], 0);
	}
}

static volatile uint64_t done;
static void on_signal(int unused)
{
	(void)unused;
	done++;
	publish(1000000000 + done);
}

// Publishes while signal handlers publish too.
static void signals(int count)
{
	struct itimerval every = { { 0, 50 }, { 0, 50 } }, never = { 0 };
	uintptr_t i = 0;

	signal(SIGALRM, on_signal);
	setitimer(ITIMER_REAL, &every, 0);
	while (done < (uint64_t)count) {
		for (int burst = 0; burst < 50; burst++)
			publish(++i);
		usleep(20);
	}
	setitimer(ITIMER_REAL, &never, 0);
	printf("published %lu\n", i + done);
}

// Acts like a signal handler in the middle of a record: the library calls this function there.
static bool interrupts, jumps;
static sigjmp_buf before;
int sched_getcpu(void)
{
	if (interrupts && jumps) {
		interrupts = false;
		siglongjmp(before, 1);
	} else if (interrupts) {
		interrupts = false;
		on_signal(0);
	}
	return 0;
}

static void nested(void)
{
	publish(1);
	for (uintptr_t i = 2; i <= 100; i++) {
		interrupts = true;
		publish(i);
	}
}

// Publishes after handlers have jumped out of publications, from the same stack or a deeper one.
static __attribute__((noinline)) void publish_deeper(uintptr_t number)
{
	volatile char room[4096];

	room[0] = number;
	publish(number);
	room[1] = room[0];
}

static void left(bool deeper)
{
	volatile uintptr_t i = 0;

	publish(++i);
	jumps = true;
	for (volatile int round = 0; round < 3; round++) {
		interrupts = !sigsetjmp(before, 1);
		if (interrupts)
			publish(++i);
		for (int more = 0; more < 200; more++)
			deeper ? publish_deeper(++i) : (void)publish(++i);
	}
	printf("published %lu\n", i);
}

// Repeats this in threads that come and go, and prints how many rings they had together.
static void *left_deeper(void *unused)
{
	(void)unused;
	left(true);
	return 0;
}

static void left_in_threads(void)
{
	const char *rings = strchr(getenv("ONBEAT_PRELOAD"), ':') + 1;
	FILE *maps;
	char line[4096];
	int count = 0;
	pthread_t thread;

	for (int i = 0; i < 20; i++) {
		pthread_create(&thread, 0, left_deeper, 0);
		pthread_join(thread, 0);
	}
	maps = fopen("/proc/self/maps", "r");
	while (fgets(line, sizeof(line), maps))
		count += strstr(line, rings) != 0;
	fclose(maps);
	// The file's head is mapped once, each ring twice.
	printf("rings %d\n", (count - 1) / 2);
}

// Repeats this at random moments.
static void on_signal_jump(int unused)
{
	(void)unused;
	siglongjmp(before, 1);
}

static void left_at_random(void)
{
	struct itimerval every = { { 0, 100 }, { 0, 100 } }, never = { 0 };
	static volatile uintptr_t i;
	static volatile int count;

	publish(++i);
	signal(SIGALRM, on_signal_jump);
	setitimer(ITIMER_REAL, &every, 0);
	if (sigsetjmp(before, 1))
		count++;
	while (count < 2000)
		for (int burst = 0; burst < 50; burst++)
			count & 1 ? publish_deeper(++i) : (void)publish(++i);
	setitimer(ITIMER_REAL, &never, 0);
	signal(SIGALRM, SIG_IGN);
	for (int more = 0; more < 200; more++)
		publish(++i);
	printf("published %lu jumps %d\n", i, count);
}

// Publishes until it is killed. Keeps its process id and its number of publications in a file.
static void endless(const char *file)
{
	FILE *open = fopen(file, "r+");
	volatile uint64_t *count = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(open), 0);

	count[1] = getpid();
	for (uintptr_t i = 1;; i++) {
		publish(i);
		*count = i;
	}
}

static void forks(char **argv)
{
	char *exec[] = { argv[0], "few", 0 };
	pid_t pid;

	few(0);
	pid = fork();
	if (!pid) {
		few(0);
		pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
		if (!pid) {
			few(0);
			execv(argv[0], exec);
			_exit(1);
		}
		waitpid(pid, 0, 0);
		_exit(0);
	}
	waitpid(pid, 0, 0);
	few(0);
}

void *__libc_malloc(size_t);
static volatile uint64_t allocations;
#ifdef COUNT_MALLOC
void *malloc(size_t size)
{
	allocations++;
	return __libc_malloc(size);
}
#endif

// Measures the nanoseconds per call: the median of 1,000 rounds of 100 calls.
static int compare(const void *a, const void *b)
{
	double difference = *(double *)a - *(double *)b;

	return (difference > 0) - (difference < 0);
}

static void cost(void)
{
	static double rounds[1000];
	struct timespec begin, end;

	for (int round = 0; round < 1000; round++) {
		usleep(500);
		clock_gettime(CLOCK_MONOTONIC, &begin);
		for (int i = 0; i < 100; i++)
			ros_trace_callback_start((void *)6, false);
		clock_gettime(CLOCK_MONOTONIC, &end);
		rounds[round] = (end.tv_sec - begin.tv_sec) * 1e7 + (end.tv_nsec - begin.tv_nsec) / 100.;
	}
	qsort(rounds, 1000, sizeof(rounds[0]), compare);
	printf("p50 %.1f ns, p99 %.1f ns\n", rounds[500], rounds[990]);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	uint64_t before;

	if (argc > 2 && !strncmp(argv[2], "refuse", 6))
		refuse(argv[2][6]);
	if (!strcmp(mode, "sequence"))
		sequence();
	else if (!strcmp(mode, "few"))
		few(0);
	else if (!strcmp(mode, "threads"))
		threads();
	else if (!strcmp(mode, "signals"))
		signals(1000);
	else if (!strcmp(mode, "nested"))
		nested();
	else if (!strcmp(mode, "left") || !strcmp(mode, "left-deeper"))
		left(mode[4]);
	else if (!strcmp(mode, "left-in-threads"))
		left_in_threads();
	else if (!strcmp(mode, "left-at-random"))
		left_at_random();
	else if (!strcmp(mode, "endless"))
		endless(argv[2]);
	else if (!strcmp(mode, "forks"))
		forks(argv);
	else if (!strcmp(mode, "cost"))
		cost();
	else if (!strcmp(mode, "callbacks"))
		callbacks();
	else if (!strcmp(mode, "sandbox"))
		sandbox(argv);
	else if (!strcmp(mode, "many"))
		for (uintptr_t i = 1; i <= 10000; i++)
			publish(i);
	if (!strcmp(mode, "allocations")) {
		publish(1);
		before = allocations;
		for (uintptr_t i = 0; i < 1000; i++)
			publish(i);
		printf("allocations %lu\n", allocations - before);
	}
	fflush(stdout);
	return 0;
}
#endif

// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// The rings of this process. A ring is made at a thread's first record. Writing a record takes no
// system call, lock or allocation. When the thread ends, another thread may take its ring.
//
// A signal handler may end a call by a jump (siglongjmp). The thread's next call detects the jump.
// It cannot if its stack is deeper. Then the thread takes another ring after some records, which
// count as lost.
//
// Nothing here waits. If two threads make the process's file at the same time, one discards its
// file. Records that cannot be written are counted by kind. If the process has no file for the
// counts, it sends the recorder a message.
#pragma once

#define PATH_BYTES 4096
#define NAME_BYTES 64
#define REFUSED ((struct file_head *)-1)
#define NOWHERE ((char *)-1)
#define DENIED_MAX 64 // after so many records in handlers, a jump must have left the call

// State that a child made by fork must not share. The kernel clears this memory in the child, so
// the child's next record finds no file.
struct process {
	struct file_head *file; // 0: not made yet; REFUSED: cannot be made
	bool reported;
	int refused; // error that prevented the file
	__u8 *rings[RINGS_MAX]; // each mapped twice in a row, so that no record is cut in two
	__u64 lost[KIND_COUNT]; // before the file existed; if refused, the first counts calls
};

static struct process *process;	   // 0: this process is not recorded
static char directory[PATH_BYTES]; // contains the rings' files
static __u64 ring_bytes;
static __u64 network_namespace; // the recorder's; 0: it has no socket
// No seccomp filter forbids to read threads' clocks.
__attribute__((visibility("hidden"), used)) bool onbeat_reads_clocks;
static bool reads_often; // ONBEAT_PRELOAD_CLOCKS is set: at publications too
static struct stat std_err; // standard error at the program's start
static pthread_key_t at_exit;

struct call {
	__u64 argument[4];
};

struct function;

static __thread struct thread {
	struct file_head *file; // contains the ring; the ring is valid only if this is the process's file
	struct ring_head *ring; // 0: no ring was free
	__u8 *bytes;
	__u64 written; // position after the record that is being written
	__u64 read;    // the recorder's read position, as last seen
	__u64 who;     // process << 32 | thread
	__u32 busy;    // running calls into this library: more than 1 in a signal handler
	__u32 denied;  // calls that began during the outermost call
	char *frame;   // stack frame of the outermost call; NOWHERE: unknown
	__u32 kind;    // kind of the last record begun
	__u8 flags;    // THREAD_*
	bool has_call;
	struct call call;	      // arguments kept from a function's entry to its return
	const struct function *inner; // function that the last one will call, with this argument
	__u64 inner_argument;
} thread __attribute__((tls_model("initial-exec")));

static struct ring_head *ring_heads(struct file_head *file)
{
	return (struct ring_head *)((char *)file + HEAD_BYTES);
}

// ---- losses
static void count_lost(__u32 kind)
{
	struct file_head *file = __atomic_load_n(&process->file, __ATOMIC_ACQUIRE);

	if (file != REFUSED)
		__atomic_fetch_add(file ? &file->lost[kind] : &process->lost[kind], 1,
				   __ATOMIC_RELAXED);
}

static void pass_on_losses(struct file_head *file)
{
	for (int kind = 0; kind < KIND_COUNT; kind++)
		if (process->lost[kind])
			__atomic_fetch_add(&file->lost[kind],
					   __atomic_exchange_n(&process->lost[kind], 0,
							       __ATOMIC_RELAXED),
					   __ATOMIC_RELAXED);
}

// ---- signals
// Blocks all signals while something must not stay half made, because a handler may jump away
// (siglongjmp).
static void hold_signals(sigset_t *before)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, before);
}

static void release_signals(const sigset_t *before)
{
	pthread_sigmask(SIG_SETMASK, before, 0);
}

// Returns whether a handler's jump has left the outermost call: the stack is above that call's
// frame again. A handler on an alternate stack gives no answer.
static bool was_left(const char *frame)
{
	stack_t own;

	return frame >= thread.frame && !sigaltstack(0, &own) && !(own.ss_flags & SS_ONSTACK);
}

// Handles a call into this library that begins while another call of this thread runs, or after a
// jump has left that call.
static __attribute__((noinline)) void again(const char *frame)
{
	bool left = was_left(frame);

	if (!left && ++thread.denied <= DENIED_MAX)
		return;
	count_lost(thread.kind);
	if (left) {
		// The record that was left is not complete. The next record takes its place.
		if (thread.ring)
			thread.written = thread.ring->written;
	} else {
		// The call may have been left. Its ring stays reserved in case it continues.
		thread.file = 0;
	}
	thread.busy = 0;
}

// Begins a call into this library. Returns the value that go() needs to end it. While the frame is
// being written it counts as unknown. So a handler finds a running call, and never compares with a
// frame of an earlier call.
static __always_inline __u32 enter(char *frame)
{
	__u32 outer;

	if (thread.busy)
		again(frame);
	outer = thread.busy;
	if (!outer)
		thread.frame = NOWHERE;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	thread.busy = outer + 1;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (!outer) {
		thread.denied = 0;
		thread.frame = frame;
	}
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	return outer;
}

static __always_inline void go(__u32 outer)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (!outer)
		thread.frame = NOWHERE;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	thread.busy = outer;
}

// ---- the process's file
static void file_name(char *to, const char *kind, __u32 number)
{
	snprintf(to, PATH_BYTES + NAME_BYTES, "%s/%s%u.%u", directory, kind, (__u32)getpid(),
		 number);
}

// ---- a process without a file
// Sends the recorder a message that this process is not recorded, and why. Returns an error if
// nobody receives it: the recorder is in another network namespace, or has ended.
static int tell(int error)
{
	const char *name = strrchr(directory, '/') + 1;
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	char text[NAME_BYTES];
	int fd, length, failed = 0;

	if (strlen(name) > sizeof(to.sun_path) - 1)
		return ENAMETOOLONG;
	memcpy(to.sun_path + 1, name, strlen(name));
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return errno;
	length = snprintf(text, sizeof(text), "%d %llu", error,
			  __atomic_load_n(&process->lost[0], __ATOMIC_RELAXED));
	if (sendto(fd, text, length, MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&to,
		   offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name)) < 0)
		failed = errno;
	close(fd);
	return failed;
}

// Leaves the message as a file name in the directory. If that fails, prints a line to standard
// error, but only if a recorder exists that was not reached.
static void tell_otherwise(int error, int failed)
{
	char path[PATH_BYTES + NAME_BYTES];
	struct stat network, now;
	int fd;

	file_name(path, "refused.", error);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd >= 0) {
		close(fd);
		return;
	}
	// Descriptor 2 may be the application's own by now: a daemon closes it, and opens other files.
	if (fstat(2, &now) || now.st_dev != std_err.st_dev || now.st_ino != std_err.st_ino)
		return;
	if (!network_namespace || (failed == ECONNREFUSED && !stat("/proc/self/ns/net", &network) &&
				   network.st_ino == network_namespace))
		return;
	dprintf(2,
		"onbeat: process %d is not recorded, and the recorder was not reached: "
		"cannot make rings in %s: %s\n",
		getpid(), directory, strerror(error));
}

// Stops recording this process for the given reason.
static struct file_head *refuse(int error)
{
	struct file_head *nothing = 0;
	int failed;

	if (!__atomic_compare_exchange_n(&process->file, &nothing, REFUSED, false, __ATOMIC_ACQ_REL,
					 __ATOMIC_ACQUIRE))
		return nothing;
	process->refused = error;
	failed = tell(error);
	if (failed)
		tell_otherwise(error, failed);
	return REFUSED;
}

// Reports at the end of the process how many calls were not recorded.
__attribute__((destructor)) static void tell_all(void)
{
	if (process && process->refused)
		tell(process->refused);
}

static int create_file(char *path, __u32 *number)
{
	int fd;

	// Earlier programs of this process, and earlier processes with its id, have used lower numbers.
	for (*number = 0;; *number += 1) {
		file_name(path, "", *number);
		fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (fd >= 0 || errno != EEXIST || *number > 100000)
			return fd;
	}
}

// Allocates memory for a part of the file, or returns an error. A request beyond the user's file
// size limit would end this process by a signal.
static int allocate(int fd, __u64 at, __u64 bytes)
{
	struct rlimit limit;

	if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur < at + bytes)
		return EFBIG;
	return posix_fallocate(fd, at, bytes);
}

// Makes the file of this process, or takes the one that another thread has made meanwhile. Its
// memory is allocated before it is mapped, so that no access causes SIGBUS later.
static struct file_head *make_file(void)
{
	struct file_head *head, *other = 0;
	char path[PATH_BYTES + NAME_BYTES];
	struct stat namespace;
	__u32 number;
	int fd = create_file(path, &number), error;

	if (fd < 0)
		return refuse(errno);
	error = allocate(fd, 0, RINGS_AT);
	head = mmap(0, RINGS_AT, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (error || head == MAP_FAILED) {
		error = error ? error : errno;
		unlink(path);
		return refuse(error);
	}
	head->pid = getpid();
	head->number = number;
	head->pid_namespace = stat("/proc/self/ns/pid", &namespace) ? 0 : namespace.st_ino;
	head->ring_bytes = ring_bytes;
	if (!__atomic_compare_exchange_n(&process->file, &other, head, false, __ATOMIC_ACQ_REL,
					 __ATOMIC_ACQUIRE)) {
		munmap(head, RINGS_AT);
		unlink(path);
		return other;
	}
	__atomic_store_n(&head->magic, FILE_MAGIC, __ATOMIC_RELEASE);
	return head;
}

// ---- the thread's ring
static __u8 *map_ring(struct file_head *file, __u32 index)
{
	__u64 at = RINGS_AT + index * ring_bytes;
	int flags = MAP_SHARED | MAP_FIXED | MAP_POPULATE, protection = PROT_READ | PROT_WRITE, fd;
	char path[PATH_BYTES + NAME_BYTES];
	__u8 *bytes;

	file_name(path, "", file->number);
	fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return 0;
	bytes = mmap(0, 2 * ring_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
		     0);
	if (bytes != MAP_FAILED &&
	    (allocate(fd, at, ring_bytes) ||
	     mmap(bytes, ring_bytes, protection, flags, fd, at) == MAP_FAILED ||
	     mmap(bytes + ring_bytes, ring_bytes, protection, flags, fd, at) == MAP_FAILED)) {
		munmap(bytes, 2 * ring_bytes);
		bytes = MAP_FAILED;
	}
	close(fd);
	return bytes == MAP_FAILED ? 0 : bytes;
}

// Returns a ring that no thread owns: one that an ended thread has left, or a new one.
static struct ring_head *own_ring(struct file_head *file, __u32 *index)
{
	struct ring_head *rings = ring_heads(file);
	__u64 count = __atomic_load_n(&file->rings, __ATOMIC_ACQUIRE);
	__u32 tid = syscall(SYS_gettid);

	for (*index = 0; *index < RINGS_MAX; *index += 1) {
		__u32 nobody = 0;

		if (*index >= count &&
		    !__atomic_compare_exchange_n(&file->rings, &count, *index + 1ULL, false,
						 __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			if (*index >= count)
				return 0;
		if (__atomic_compare_exchange_n(&rings[*index].owner, &nobody, tid, false,
						__ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			return &rings[*index];
		count = __atomic_load_n(&file->rings, __ATOMIC_ACQUIRE);
	}
	return 0;
}

static void take_ring(struct file_head *file)
{
	struct ring_head *ring;
	__u32 index;

	ring = own_ring(file, &index);
	if (!ring)
		return;
	if (!process->rings[index])
		process->rings[index] = map_ring(file, index);
	if (!process->rings[index]) {
		__atomic_store_n(&ring->owner, 0, __ATOMIC_RELEASE);
		return;
	}
	thread.bytes = process->rings[index];
	thread.written = ring->written;
	thread.read = thread.written > ring_bytes ? thread.written - ring_bytes : 0;
	thread.ring = ring;
	pthread_setspecific(at_exit, &thread);
}

// Frees the rings of a thread that ends, also those that it kept for calls which a jump may have
// left. A child that has recorded nothing does not free its parent's rings.
static void leave(void *unused)
{
	struct file_head *file = __atomic_load_n(&process->file, __ATOMIC_ACQUIRE);
	__u32 tid = syscall(SYS_gettid);
	struct ring_head *rings;
	__u64 count;

	(void)unused;
	thread.file = 0;
	thread.ring = 0;
	if (!file || file == REFUSED)
		return;
	rings = ring_heads(file);
	count = __atomic_load_n(&file->rings, __ATOMIC_ACQUIRE);
	for (__u64 i = 0; i < count && i < RINGS_MAX; i++)
		if (__atomic_load_n(&rings[i].owner, __ATOMIC_RELAXED) == tid)
			__atomic_store_n(&rings[i].owner, 0, __ATOMIC_RELEASE);
}

// ---- records
static __always_inline bool has_room(__u64 bytes)
{
	__u64 a, b;

	if (thread.written + bytes - thread.read <= ring_bytes)
		return true;
	// The recorder may write these numbers bytewise. If both are equal, neither is half written.
	a = __atomic_load_n(&thread.ring->read[0], __ATOMIC_ACQUIRE);
	b = __atomic_load_n(&thread.ring->read[1], __ATOMIC_ACQUIRE);
	if (a == b && a > thread.read && a <= thread.written)
		thread.read = a;
	return thread.written + bytes - thread.read <= ring_bytes;
}

// Returns room for a record of this size. Returns 0 and counts a loss if there is no room, or if a
// signal handler has interrupted this library.
static __always_inline void *begin(__u32 kind, __u32 size)
{
	__u8 *at;

	if (thread.busy != 1 || !thread.ring || !has_room(size + 8)) {
		count_lost(kind);
		return 0;
	}
	thread.kind = kind;
	at = thread.bytes + (thread.written & (ring_bytes - 1));
	*(__u64 *)at = size;
	thread.written += size + 8;
	return at + 8;
}

static __always_inline void submit(const void *record)
{
	// A handler that interrupted this thread may have taken another ring and counted this record as
	// lost. It may also have forked: then the ring belongs to the parent.
	if (thread.file != process->file || !thread.ring)
		return;
	if ((__u64)((const __u8 *)record - thread.bytes) < 2 * ring_bytes)
		__atomic_store_n(&thread.ring->written, thread.written, __ATOMIC_RELEASE);
	else
		// The position of the former ring may have been stored in this ring's place.
		thread.written = thread.ring->written;
}

// ---- start
static void forget_file(void)
{
	memset(process, 0, sizeof(*process));
}

// Returns the number of seccomp filters that restrict this process; ~0: unknown.
static __u64 count_filters(void)
{
	int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
	char text[PATH_BYTES], *filters;
	ssize_t length = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

	if (fd >= 0)
		close(fd);
	if (length <= 0)
		return ~0ULL;
	text[length] = 0;
	if (strstr(text, "\nSeccomp:\t0"))
		return 0;
	filters = strstr(text, "\nSeccomp_filters:\t");
	// Linux before 5.9 does not count them, and one without seccomp has none.
	return filters ? strtoull(strchr(filters, '\t'), 0, 10) : strstr(text, "\nSeccomp:") != 0;
}

// Reads ONBEAT_PRELOAD: the size of a ring in bytes, a colon, and the directory of the rings.
static void configure(void)
{
	const char *setting = getenv("ONBEAT_PRELOAD");
	void *memory;

	if (process || !setting)
		return;
	for (ring_bytes = 0; *setting >= '0' && *setting <= '9' && ring_bytes <= 1 << 26; setting++)
		ring_bytes = ring_bytes * 10 + (*setting - '0');
	if (*setting++ != ':' || strlen(setting) >= PATH_BYTES || !ring_bytes ||
	    ring_bytes & (ring_bytes - 1) || ring_bytes > 1 << 26 ||
	    ring_bytes % sysconf(_SC_PAGESIZE))
		return;
	strcpy(directory, setting);
	setting = getenv("ONBEAT_PRELOAD_NET");
	network_namespace = setting ? strtoull(setting, 0, 10) : 0;
	// The recorder's own filters allow to read clocks. A further one may end the process for it.
	setting = getenv("ONBEAT_PRELOAD_FILTERS");
	reads_often = getenv("ONBEAT_PRELOAD_CLOCKS") != 0;
	onbeat_reads_clocks = setting && count_filters() <= strtoull(setting, 0, 10);
	// Without a standard error no file may compare equal. No device has this number.
	if (fstat(2, &std_err))
		std_err.st_dev = ~0;
	memory = mmap(0, sizeof(*process), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		      0);
	// The key is created early: glibc then has room for it in each thread, and does not allocate.
	if (memory == MAP_FAILED || pthread_key_create(&at_exit, leave))
		return;
	process = memory;
	if (madvise(memory, sizeof(*process), MADV_WIPEONFORK))
		pthread_atfork(0, 0, forget_file);
}

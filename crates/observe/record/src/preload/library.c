// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// The library that recorded programs preload. It replaces functions of ROS 2. It records each call
// (programs.h, ../bpf/ros.h) in the thread's ring (rings.h), and passes the call on to the original
// function.
//
// Per call it reads a clock and writes some 50 bytes. It starts no thread, takes no lock, handles
// no signal, and changes no argument and no result. It blocks signals only while it makes a
// thread's ring.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/types.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif
#undef __always_inline
#define __always_inline inline __attribute__((always_inline))

#include "../bpf/records.h"
#include "format.h"
#include "rings.h"
#include "programs.h"
#include "../bpf/ros.h"

#define EXPORT __attribute__((visibility("default")))

// The distributions of ROS 2 that probes/mod.rs distinguishes.
enum distribution { UNKNOWN, HUMBLE, IRON, JAZZY, KILTED, NEVER };

typedef __u64 original_function(__u64, __u64, __u64, __u64, __u64, __u64);

struct function {
	const char *name;
	int (*program)(struct pt_regs *);
	int (*returned)(struct pt_regs *);
	enum distribution since, until;
	const struct function *inner; // a function of this table that this function calls
	const char *enabled;	      // passed on only if this function returns true
	__u32 number;
	bool is_wanted;		     // recorded in this distribution
	original_function *original; // 0: not looked up yet
};

// ---- originals
// Takes the place of an original function that does not exist, which no caller is linked to.
// Returns an error if the function has a result.
static __u64 nothing(__u64 a, __u64 b, __u64 c, __u64 d, __u64 e, __u64 f)
{
	(void)a, (void)b, (void)c, (void)d, (void)e, (void)f;
	return 1;
}

// Searches the libraries to which the caller's own library is linked. Python loads the libraries of
// ROS 2 so that no other library sees them.
static void *find_for(const void *caller, const char *name)
{
	void *library, *found;
	Dl_info info;

	if (!dladdr(caller, &info) || !info.dli_fname)
		return 0;
	library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
	if (!library)
		return 0;
	found = dlsym(library, name);
	dlclose(library);
	return found;
}

// Returns the original function, or 0 if it does not exist.
static void *find(const void *caller, const char *name)
{
	void *found = dlsym(RTLD_NEXT, name);
	Dl_info own, info;

	if (!found)
		found = find_for(caller, name);
	if (!found || !dladdr(found, &info) || !dladdr((void *)find, &own) ||
	    info.dli_fbase == own.dli_fbase)
		return 0;
	// The library must stay loaded, because we keep the function's address.
	if (info.dli_fname)
		dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
	return found;
}

static enum distribution distribution_of(const void *caller)
{
	static enum distribution known;
	enum distribution found = __atomic_load_n(&known, __ATOMIC_RELAXED);

	if (found)
		return found;
	found = find(caller, "ros_trace_rmw_take_request")	       ? KILTED
		: find(caller, "ros_trace_rclcpp_intra_publish")   ? JAZZY
		: find(caller, "ros_trace_enabled_callback_start") ? IRON
		: find(caller, "ros_trace_callback_start")	   ? HUMBLE
								   : UNKNOWN;
	// If none was found, another library may ask later.
	__atomic_store_n(&known, found, __ATOMIC_RELAXED);
	return found ? found : HUMBLE;
}

static void look_up(struct function *function, const void *caller)
{
	original_function *original = (original_function *)find(caller, function->name);
	enum distribution distribution;

	if (!original)
		return;
	distribution = distribution_of(caller);
	function->is_wanted = distribution >= function->since && distribution < function->until;
	__atomic_store_n(&function->original, original, __ATOMIC_RELEASE);
}

static struct function *const functions[];

// Looks up the originals of all functions at the first call of any. So the dynamic linker's lock is
// taken only here, and not later during the program's work.
static original_function *look_up_all(struct function *called, const void *caller)
{
	original_function *original;
	int error = errno;
	sigset_t signals;

	hold_signals(&signals);
	for (int i = 0; functions[i]; i++)
		if (!__atomic_load_n(&functions[i]->original, __ATOMIC_ACQUIRE))
			look_up(functions[i], caller);
	original = __atomic_load_n(&called->original, __ATOMIC_ACQUIRE);
	release_signals(&signals);
	errno = error;
	return original ? original : nothing;
}

static bool is_enabled(const char *enabled, const void *caller)
{
	bool (*original)(void) = (bool (*)(void))find(caller, enabled);

	return original && original();
}

// ---- calls
static void run(int (*program)(struct pt_regs *), struct pt_regs *registers)
{
	__u32 outer = enter(__builtin_frame_address(0));

	program(registers);
	go(outer);
}

// Records the call of a function, and returns the function to which the caller is passed on.
__attribute__((visibility("hidden"))) original_function *
onbeat_enter(struct pt_regs *registers, struct function *function, const void *caller)
{
	original_function *original = __atomic_load_n(&function->original, __ATOMIC_ACQUIRE);

	if (!original)
		original = look_up_all(function, caller);
	if (function->is_wanted && process) {
		registers->probe = function->number;
		if (thread.inner != function || thread.inner_argument != ARG1(registers))
			run(function->program, registers);
		thread.inner = function->inner;
		thread.inner_argument = ARG1(registers);
	}
	if (function->enabled && !is_enabled(function->enabled, caller))
		return nothing;
	return original;
}

static __u64 around(struct pt_regs *registers, struct function *function, const void *caller)
{
	original_function *original = onbeat_enter(registers, function, caller);
	__u64 *a = registers->argument;
	__u64 result = original(a[0], a[1], a[2], a[3], a[4], a[5]);

	if (function->is_wanted && process)
		run(function->returned, registers);
	return result;
}

// ---- the functions that callers reach
// All registers that may hold an argument are restored before the original begins. So its number of
// arguments does not matter.
#if defined(__x86_64__)
__asm__(".pushsection .text\n"
	".type onbeat_stand_in, @function\n"
	"onbeat_stand_in:\n"
	".cfi_startproc\n"
	"subq $72, %rsp\n"
	".cfi_adjust_cfa_offset 72\n"
	"movq %rdi, (%rsp)\n"
	"movq %rsi, 8(%rsp)\n"
	"movq %rdx, 16(%rsp)\n"
	"movq %rcx, 24(%rsp)\n"
	"movq %r8, 32(%rsp)\n"
	"movq %r9, 40(%rsp)\n"
	"movq %rax, 56(%rsp)\n"
	"movq %rsp, %rdi\n"
	"movq %r11, %rsi\n"
	"movq 72(%rsp), %rdx\n"
	"call onbeat_enter\n"
	"movq %rax, %r11\n"
	"movq (%rsp), %rdi\n"
	"movq 8(%rsp), %rsi\n"
	"movq 16(%rsp), %rdx\n"
	"movq 24(%rsp), %rcx\n"
	"movq 32(%rsp), %r8\n"
	"movq 40(%rsp), %r9\n"
	"movq 56(%rsp), %rax\n"
	"addq $72, %rsp\n"
	".cfi_adjust_cfa_offset -72\n"
	"jmp *%r11\n"
	".cfi_endproc\n"
	".size onbeat_stand_in, . - onbeat_stand_in\n"
	".popsection\n");
#define TO_STAND_IN(symbol)                                                                        \
	"endbr64\n"                                                                                \
	"leaq onbeat_function_" symbol "(%rip), %r11\n"                                            \
	"jmp onbeat_stand_in\n"
#elif defined(__aarch64__)
__asm__(".pushsection .text\n"
	".type onbeat_stand_in, %function\n"
	"onbeat_stand_in:\n"
	".cfi_startproc\n"
	"stp x29, x30, [sp, #-112]!\n"
	".cfi_def_cfa_offset 112\n"
	".cfi_offset 29, -112\n"
	".cfi_offset 30, -104\n"
	"mov x29, sp\n"
	"stp x0, x1, [sp, #16]\n"
	"stp x2, x3, [sp, #32]\n"
	"stp x4, x5, [sp, #48]\n"
	"stp x6, x7, [sp, #80]\n" // 64 is the probe's number
	"str x8, [sp, #96]\n"
	"add x0, sp, #16\n"
	"mov x1, x16\n"
	"mov x2, x30\n"
	"bl onbeat_enter\n"
	"mov x16, x0\n"
	"ldp x0, x1, [sp, #16]\n"
	"ldp x2, x3, [sp, #32]\n"
	"ldp x4, x5, [sp, #48]\n"
	"ldp x6, x7, [sp, #80]\n"
	"ldr x8, [sp, #96]\n"
	"ldp x29, x30, [sp], #112\n"
	".cfi_restore 29\n"
	".cfi_restore 30\n"
	".cfi_def_cfa_offset 0\n"
	"br x16\n"
	".cfi_endproc\n"
	".size onbeat_stand_in, . - onbeat_stand_in\n"
	".popsection\n");
#define TO_STAND_IN(symbol)                                                                        \
	"hint #34\n" /* bti c */                                                                   \
	"adrp x16, onbeat_function_" symbol "\n"                                                   \
	"add x16, x16, :lo12:onbeat_function_" symbol "\n"                                         \
	"b onbeat_stand_in\n"
#else
#error "no stand-in for this processor"
#endif

#define STAND_IN(symbol)                                                                           \
	__asm__(".pushsection .text\n"                                                             \
		".globl " #symbol "\n"                                                             \
		".type " #symbol ", %function\n" #symbol ":\n"                                     \
		".cfi_startproc\n" TO_STAND_IN(#symbol) ".cfi_endproc\n"                           \
		".size " #symbol ", . - " #symbol "\n"                                             \
		".popsection\n")

// Each line of functions.h gets a number, and a description to which its replacement refers.
enum {
	NUMBER_NONE,
#define ENTRY(symbol, ...) NUMBER_##symbol,
#define INNER(symbol, ...) NUMBER_##symbol,
#define ASKED(event, ...) NUMBER_ros_trace_do_##event,
#define AROUND(symbol, ...) NUMBER_##symbol,
#include "functions.h"
#undef ENTRY
#undef INNER
#undef ASKED
#undef AROUND
};

#define DESCRIBE(symbol, ...)                                                                      \
	__attribute__((visibility("hidden"), used)) struct function onbeat_function_##symbol = {   \
		.name = #symbol, .number = NUMBER_##symbol, __VA_ARGS__                            \
	}

#define ENTRY(symbol, on_entry, from, to)                                                          \
	DESCRIBE(symbol, .program = on_entry, .since = from, .until = to);                         \
	STAND_IN(symbol);
#define INNER(symbol, on_entry, calls_on)                                                          \
	DESCRIBE(symbol, .program = on_entry, .since = HUMBLE, .until = NEVER,                     \
		 .inner = &onbeat_function_##calls_on);                                            \
	STAND_IN(symbol);
#define ASKED(event, on_entry)                                                                     \
	DESCRIBE(ros_trace_do_##event, .program = on_entry, .since = HUMBLE, .until = NEVER,       \
		 .enabled = "ros_trace_enabled_" #event);                                          \
	STAND_IN(ros_trace_do_##event);                                                            \
	EXPORT bool ros_trace_enabled_##event(void);                                               \
	EXPORT bool ros_trace_enabled_##event(void)                                                \
	{                                                                                          \
		return process || is_enabled("ros_trace_enabled_" #event,                          \
					     __builtin_return_address(0));                         \
	}
#define AROUND(symbol, on_entry, on_return, from, to)                                              \
	DESCRIBE(symbol, .program = on_entry, .returned = on_return, .since = from, .until = to);  \
	EXPORT original_function symbol;                                                           \
	EXPORT __u64 symbol(__u64 a, __u64 b, __u64 c, __u64 d, __u64 e, __u64 f)                  \
	{                                                                                          \
		struct pt_regs registers = { .argument = { a, b, c, d, e, f } };                   \
		return around(&registers, &onbeat_function_##symbol,                               \
			      __builtin_return_address(0));                                        \
	}
#include "functions.h"
#undef ENTRY
#undef INNER
#undef ASKED
#undef AROUND

#define ENTRY(symbol, ...) &onbeat_function_##symbol,
#define INNER(symbol, ...) &onbeat_function_##symbol,
#define ASKED(event, ...) &onbeat_function_ros_trace_do_##event,
#define AROUND(symbol, ...) &onbeat_function_##symbol,
static struct function *const functions[] = {
#include "functions.h"
	0
};

// ---- seccomp
// A filter may end the process for reading a thread's clock. So readings end before this process
// installs a filter. Programs do that by one of two functions of the C library.
EXPORT int prctl(int option, ...)
{
	static int (*original)(int, __u64, __u64, __u64, __u64);
	__u64 arguments[4];
	va_list list;

	va_start(list, option);
	for (int i = 0; i < 4; i++)
		arguments[i] = va_arg(list, __u64);
	va_end(list);
	if (option == PR_SET_SECCOMP)
		onbeat_reads_clocks = false;
	if (!original)
		original = dlsym(RTLD_NEXT, "prctl");
	return original(option, arguments[0], arguments[1], arguments[2], arguments[3]);
}

// The same as the C library's function. In C it could not return twice, as a call of vfork or clone
// does.
#define TEXT_OF(value) #value
#define NUMBER(value) TEXT_OF(value)
#if defined(__x86_64__)
__asm__(".pushsection .text\n"
	".globl syscall\n"
	".type syscall, %function\n"
	"syscall:\n"
	".cfi_startproc\n"
	"endbr64\n"
	"cmpq $" NUMBER(SYS_seccomp) ", %rdi\n"
	"jne 1f\n"
	"movb $0, onbeat_reads_clocks(%rip)\n"
	"1: movq %rdi, %rax\n"
	"movq %rsi, %rdi\n"
	"movq %rdx, %rsi\n"
	"movq %rcx, %rdx\n"
	"movq %r8, %r10\n"
	"movq %r9, %r8\n"
	"movq 8(%rsp), %r9\n"
	"syscall\n"
	"cmpq $-4095, %rax\n"
	"jae 2f\n"
	"ret\n"
	"2: negq %rax\n"
	"pushq %rax\n"
	".cfi_adjust_cfa_offset 8\n"
	"call __errno_location@PLT\n"
	"popq %rcx\n"
	".cfi_adjust_cfa_offset -8\n"
	"movl %ecx, (%rax)\n"
	"movq $-1, %rax\n"
	"ret\n"
	".cfi_endproc\n"
	".size syscall, . - syscall\n"
	".popsection\n");
#elif defined(__aarch64__)
__asm__(".pushsection .text\n"
	".globl syscall\n"
	".type syscall, %function\n"
	"syscall:\n"
	".cfi_startproc\n"
	"hint #34\n" /* bti c */
	"cmp x0, #" NUMBER(SYS_seccomp) "\n"
	"b.ne 1f\n"
	"adrp x9, onbeat_reads_clocks\n"
	"strb wzr, [x9, :lo12:onbeat_reads_clocks]\n"
	"1: mov x8, x0\n"
	"mov x0, x1\n"
	"mov x1, x2\n"
	"mov x2, x3\n"
	"mov x3, x4\n"
	"mov x4, x5\n"
	"mov x5, x6\n"
	"svc #0\n"
	"cmn x0, #4095\n"
	"b.cs 2f\n"
	"ret\n"
	"2: stp x29, x30, [sp, #-32]!\n"
	".cfi_def_cfa_offset 32\n"
	".cfi_offset 29, -32\n"
	".cfi_offset 30, -24\n"
	"mov x29, sp\n"
	"neg x0, x0\n"
	"str x0, [sp, #16]\n"
	"bl __errno_location\n"
	"ldr x1, [sp, #16]\n"
	"str w1, [x0]\n"
	"mov x0, #-1\n"
	"ldp x29, x30, [sp], #32\n"
	".cfi_restore 29\n"
	".cfi_restore 30\n"
	".cfi_def_cfa_offset 0\n"
	"ret\n"
	".cfi_endproc\n"
	".size syscall, . - syscall\n"
	".popsection\n");
#endif

// This runs before the program's own code if ROS 2 is linked to the program. Python loads ROS 2
// later.
__attribute__((constructor)) static void load(void)
{
	configure();
	if (process && dlsym(RTLD_NEXT, "ros_trace_rcl_init"))
		look_up_all(functions[0], (void *)load);
}

// A gate before the library of `onbeat record --preload`, to be preloaded before onbeat's library.
//
// It replaces the same functions once more. It passes each call on to onbeat's function, or to the
// original function. The first byte of the file ONBEAT_LAB_GATE decides: 0 means the original.
// Without such a file calls go to onbeat's function. The experiment writes the byte.
//
// One process can so run in turns with and without onbeat's library, and the gate costs the same in
// both. No symbol is looked up during a call.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

// The functions of onbeat's library that are called for messages and have at most six integers or
// addresses as arguments. Functions that create nodes and endpoints have no gate: they are always
// recorded.
#define FUNCTIONS(ONE)                          \
  ONE(ros_trace_callback_start)                 \
  ONE(ros_trace_callback_end)                   \
  ONE(rcl_timer_call_with_info)                 \
  ONE(rcl_timer_call)                           \
  ONE(ros_trace_rmw_take)                       \
  ONE(ros_trace_rmw_publish)                    \
  ONE(rmw_publish)                              \
  ONE(rmw_take_loaned_message_with_info)        \
  ONE(rmw_publish_loaned_message)               \
  ONE(ros_trace_rclcpp_intra_publish)           \
  ONE(ros_trace_rclcpp_ring_buffer_enqueue)     \
  ONE(ros_trace_rclcpp_ring_buffer_dequeue)     \
  ONE(ros_trace_rclcpp_ring_buffer_clear)       \
  ONE(ros_trace_rmw_send_request)               \
  ONE(ros_trace_rmw_take_request)               \
  ONE(ros_trace_rmw_send_response)              \
  ONE(ros_trace_rmw_take_response)              \
  ONE(rmw_send_request)                         \
  ONE(rmw_take_request)                         \
  ONE(rmw_send_response)                        \
  ONE(rmw_take_response)                        \
  ONE(ros_trace_rclcpp_executor_get_next_ready) \
  ONE(ros_trace_rclcpp_executor_wait_for_work)  \
  ONE(ros_trace_rclcpp_executor_execute)        \
  ONE(rcl_wait)                                 \
  ONE(rcl_trigger_guard_condition)

typedef uint64_t function(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

static const unsigned char always = 1;
static const volatile unsigned char *is_open = &always;

// The compiler makes this a jump, so the called function sees its caller and any number of
// arguments.
#define GATE(name)                                                                                   \
  static function *name##_recorded, *name##_original;                                                \
  uint64_t name(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f) {            \
    return (*is_open ? name##_recorded : name##_original)(a, b, c, d, e, f);                         \
  }
FUNCTIONS(GATE)

// Returns the function of this name in the first library after that of `recorded` that has one.
// onbeat passes calls on to it. A library's handle also finds symbols of the libraries that it
// needs, which may not be the first ones.
static function *behind(const char *name, function *recorded) {
  struct link_map *library = NULL;
  Dl_info info;
  if (!recorded || !dladdr1((void *)recorded, &info, (void **)&library, RTLD_DL_LINKMAP)) return recorded;
  while ((library = library->l_next)) {
    void *handle = dlopen(library->l_name, RTLD_LAZY | RTLD_NOLOAD);
    if (!handle) continue;
    void *found = dlsym(handle, name);
    dlclose(handle);
    if (found && dladdr(found, &info) && info.dli_fbase == (void *)library->l_addr) return (function *)found;
  }
  return recorded;
}

__attribute__((constructor)) static void begin(void) {
#define FIND(name)                                        \
  name##_recorded = (function *)dlsym(RTLD_NEXT, #name);  \
  name##_original = behind(#name, name##_recorded);
  FUNCTIONS(FIND)
  const char *path = getenv("ONBEAT_LAB_GATE");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *memory = mmap(NULL, 1, PROT_READ, MAP_SHARED | MAP_POPULATE, file, 0);
  if (memory != MAP_FAILED) is_open = memory;
  close(file);
}

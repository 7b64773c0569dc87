// The fastest possible hand-over: one side changes a word, the other sleeps on it and reads a
// stamp.
#define _GNU_SOURCE
#include "../transport.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum { STAMPS = 64 };

struct shared {
  PEER_ALIGN _Atomic uint32_t word;
  PEER_ALIGN _Atomic int attached;
  PEER_ALIGN struct stamp stamps[STAMPS];
};

struct side {
  struct shared *shared;
  uint32_t seen;
};

static struct shared *map(const char *topic) {
  char name[160];
  snprintf(name, sizeof name, "/%s", topic);
  int fd = shm_open(name, O_RDWR | O_CREAT, 0600);
  if (fd < 0 || ftruncate(fd, sizeof(struct shared)) != 0) peer_die("futex: %s: %s", name, strerror(errno));
  void *memory = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) peer_die("futex: %s: %s", name, strerror(errno));
  close(fd);
  return memory;
}

static struct side *attach(const char *topic) {
  // The kernel identifies words of one process by their address, so both sides need the same
  // mapping.
  static struct { char topic[128]; struct shared *shared; } known[PEER_SIZES];
  int i = 0;
  while (i < PEER_SIZES - 1 && known[i].shared && strcmp(known[i].topic, topic) != 0) i++;
  if (!known[i].shared) {
    snprintf(known[i].topic, sizeof known[i].topic, "%s", topic);
    known[i].shared = map(topic);
  }
  struct side *side = calloc(1, sizeof *side);
  if (!side) peer_die("futex: no memory");
  side->shared = known[i].shared;
  return side;
}

static void *reader(const char *topic, size_t bytes) {
  (void)bytes;
  struct side *side = attach(topic);
  side->seen = atomic_load(&side->shared->word);
  atomic_fetch_add(&side->shared->attached, 1);
  return side;
}

static void *writer(const char *topic, size_t bytes) {
  (void)bytes;
  struct side *side = attach(topic);
  // The readers have opened the memory already, so nobody needs the name any more.
  char name[160];
  snprintf(name, sizeof name, "/%s", topic);
  shm_unlink(name);
  return side;
}

static bool matched(void *side, int readers) {
  return atomic_load(&((struct side *)side)->shared->attached) >= readers;
}

static long futex(struct shared *shared, int operation, uint32_t value, const struct timespec *limit) {
  if (peer_within) operation |= FUTEX_PRIVATE_FLAG;
  return syscall(SYS_futex, &shared->word, operation, value, limit, NULL, FUTEX_BITSET_MATCH_ANY);
}

static void send_stamp(void *side, const struct stamp *stamp, size_t bytes) {
  (void)bytes;
  struct shared *shared = ((struct side *)side)->shared;
  uint32_t word = atomic_load_explicit(&shared->word, memory_order_relaxed);
  shared->stamps[word % STAMPS] = *stamp;
  atomic_store_explicit(&shared->word, word + 1, memory_order_release);
  futex(shared, FUTEX_WAKE, INT_MAX, NULL);
}

static bool receive(void *opaque, int64_t deadline_ns, size_t bytes, struct sample *sample) {
  (void)bytes;
  struct side *side = opaque;
  struct timespec limit = peer_timespec(deadline_ns);
  while (atomic_load_explicit(&side->shared->word, memory_order_acquire) == side->seen) {
    if (deadline_ns == 0) return false;
    if (futex(side->shared, FUTEX_WAIT_BITSET, side->seen, &limit) != 0 && errno == ETIMEDOUT) return false;
  }
  sample->stamp = side->shared->stamps[side->seen++ % STAMPS];
  sample->received_ns = peer_now();
  return true;
}

int main(int argc, char **argv) {
  static const struct peer peer = {"futex", writer, reader, matched, send_stamp, receive};
  return peer_main(argc, argv, &peer);
}

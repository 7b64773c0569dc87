// What an event of ROS 2's tracing costs its caller: prints ns for each call, the median of 1,000 bursts of so many, with
// pauses in which whoever takes the events away can do so: events CALLS
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "tracetools/tracetools.h"

#define BURSTS 1000

static int compare(const void *a, const void *b) {
  double difference = *(const double *)a - *(const double *)b;
  return (difference > 0) - (difference < 0);
}

static double now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1e9 + time.tv_nsec;
}

// What is public of an endpoint: its third word is its topic.
static const void *publisher[3] = {0, 0, "/events"};

int main(int argc, char **argv) {
  int calls = argc > 1 ? atoi(argv[1]) : 1;
  static double each[BURSTS];
  for (int burst = 0; burst < BURSTS; burst++) {
    usleep(500);
    double begin = now_ns();
    for (int i = 0; i < calls; i++)
      ros_trace_rmw_publish(publisher, &begin, i);
    each[burst] = (now_ns() - begin) / calls;
  }
  qsort(each, BURSTS, sizeof(each[0]), compare);
  printf("%.2f\n", each[BURSTS / 2]);
  return 0;
}

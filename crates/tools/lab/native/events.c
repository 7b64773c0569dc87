// The cost of an event of ROS 2's tracing for its caller: events CALLS
//
// Prints the time per call in ns: the median of 1,000 bursts of CALLS calls. A pause between bursts
// gives the tracer time to take the events away.
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

// The public part of an endpoint. Its third word is the topic.
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

// The graph of the perception pipeline (section 3 of "A middleware journey"): 50 publishers and 100
// subscriptions. onbeat's peer program has the same numbers.
#pragma once

#include <stddef.h>

enum { PIPELINE_NODES = 50, PIPELINE_INPUTS = 4 };

// Returns the number of inputs of a node. Time releases node 0. Each other node has two inputs, the
// last one four: 100 in all.
static inline int pipeline_inputs(int node) {
  return node == 0 ? 0 : node == PIPELINE_NODES - 1 ? 4 : 2;
}

// Returns the node whose messages an input takes. Input 0, from the previous node, triggers.
static inline int pipeline_source(int node, int input) {
  switch (input) {
    case 0: return node - 1;
    case 1: return (node - 1) / 2;
    case 2: return 10;
    default: return 20;
  }
}

static inline int pipeline_readers(int source) {
  int readers = 0;
  for (int node = 1; node < PIPELINE_NODES; node++)
    for (int input = 0; input < pipeline_inputs(node); input++)
      readers += pipeline_source(node, input) == source;
  return readers;
}

static inline size_t pipeline_bytes(int node) {
  static const size_t bytes[10] = {64, 1024, 16384, 64, 1024, 64, 16384, 1024, 64, 262144};
  return bytes[node % 10];
}

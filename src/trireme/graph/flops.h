#pragma once
#include "trireme/spec/graph.h"

namespace trireme::graph {

// Floating-point operations of the graph's forward pass with its hinted sizes (matrix products, convolutions,
// attention, recurrent cells; 2 per multiply-add).
double forward_flops(const spec::Graph& graph);

}  // namespace trireme::graph

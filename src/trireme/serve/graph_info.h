#pragma once
// The interface of a graph as the protocol shows it.
#include "trireme/serve/values.h"
#include "trireme/spec/graph.h"

namespace trireme::serve {

// Outputs are named output_0, output_1, … in the order in which the module returns them; those that are None
// are left out, numbers are tensors of shape [1]. Rows may be joined when every input and output is a tensor
// whose first size is one and the same symbol, and the graph changes neither buffers nor inputs.
// Error(unsupported) for inputs that are no tensors and element types that the protocol does not know. Name,
// version and platform stay empty.
ModelInfo describe_graph(const spec::Graph& graph);

}  // namespace trireme::serve

#pragma once
// Instances of `.pt2` graphs, run by graph/executor_torch.
#include "trireme/serve/backend.h"
#include "trireme/serve/options.h"

namespace trireme::serve {

// `threads`: processor threads of each instance when the options leave it open. Throws Error: see
// describe_graph, graph::Program and graph::Executor.
Instances load_pt2(const ModelOptions& options, int64_t threads);

}  // namespace trireme::serve

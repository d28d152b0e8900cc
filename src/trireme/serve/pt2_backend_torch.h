#pragma once
// Instances of `.pt2` files: graphs run by graph/executor_torch, and AOTInductor packages.
#include "trireme/serve/backend.h"
#include "trireme/serve/options.h"

namespace trireme::serve {

// `threads`: processor threads of each instance when the options leave it open. Throws Error: see
// describe_graph, graph::Program, graph::Executor and make_aoti_backend.
Instances load_model(const ModelOptions& options, int64_t threads);

}  // namespace trireme::serve

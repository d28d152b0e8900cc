#pragma once
// One instance of an AOTInductor package that carries its graph and its weights beside the compiled code, as
// trireme.export.inference_graph(…, compile=True) writes it.
#include "trireme/graph/pt2_reader.h"
#include "trireme/serve/backend.h"
#include "trireme/serve/options.h"

namespace trireme::serve {

// The weights are the archive's, or those of options.weights, by name. Error(input) names what is missing or
// does not fit; Error(unsupported) when the code was compiled for another device or returns what the graph
// does not.
std::unique_ptr<Backend> make_aoti_backend(const graph::Pt2File& file, const ModelInfo& info,
                                           const ModelOptions& options, int64_t threads);

}  // namespace trireme::serve

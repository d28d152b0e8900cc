#pragma once
// Does a request fit a model? And which requests may share a run.
#include "trireme/serve/values.h"

namespace trireme::serve {

// Puts the inputs into the model's order. RequestError(invalid) names what is missing, unknown, given twice,
// of another type or shape, and outputs that the model does not have. Returns the number of rows: the common
// first size where the model is joinable, else 1.
int64_t check_request(const ModelInfo& model, InferRequest& request);

// Equal for requests whose inputs may be laid end to end along the first dimension: same sizes beyond it.
std::vector<int64_t> join_key(const ModelInfo& model, const InferRequest& request);

}  // namespace trireme::serve

#pragma once
// Bodies of the infer call: JSON, with or without the binary tensor extension, to values and back.
// Source: kserve/open-inference-protocol (REST), and Triton's binary tensor data extension.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/serve/values.h"

namespace trireme::serve {

// `json_bytes`: the Inference-Header-Content-Length, absent when the whole body is JSON. Tensors sent in
// binary view `body`. RequestError(invalid) says which tensor and what is wrong. `model` and `version` stay
// empty.
InferRequest parse_infer_request(std::shared_ptr<const std::string> body, std::optional<int64_t> json_bytes);

// A raw request (header length 0): the body is the one input, at most one of whose sizes is variable.
InferRequest raw_infer_request(const ModelInfo& model, std::shared_ptr<const std::string> body);

// The value of the Inference-Header-Content-Length header for a body of `body_bytes`; RequestError(invalid).
int64_t parse_header_length(std::string_view text, size_t body_bytes);

struct InferBody {
  std::string text;                  // JSON, then binary tensors
  std::optional<size_t> json_bytes;  // set when binary tensors follow
};
// `wanted` and `binary_default` as in the request. RequestError(invalid) where JSON cannot carry an output.
InferBody render_infer_response(const InferResponse& response, const std::vector<RequestedOutput>& wanted,
                                bool binary_default);

// For clients, the load generator and the spill: the body of a request, and that of the answer.
InferBody render_infer_request(const InferRequest& request, bool binary_inputs);
InferResponse parse_infer_response(std::shared_ptr<const std::string> body,
                                   std::optional<int64_t> json_bytes);

}  // namespace trireme::serve

#pragma once
// The Open Inference Protocol v2 as values, whatever wire they came over.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trireme/spec/dtype.h"

namespace trireme::serve {

// Why a request gets no result. HTTP and gRPC each have one table that turns it into their status.
enum class Reason : uint8_t {
  invalid,      // the request is wrong: 400
  not_found,    // no such model, version or path: 404
  wrong_verb,   // 405
  too_large,    // body above the limit: 413
  overloaded,   // the queue is full, or the answer would come too late: 503
  expired,      // its deadline passed while it waited: 503
  cancelled,    // the client went away
  unavailable,  // loading, unloading or draining: 503
  unsupported,  // understood, but not offered: 501
  failed,       // the model failed: 500
};
std::string_view name(Reason reason);

struct Rejection {
  Reason reason = Reason::failed;
  std::string message;  // one line, for the client
  bool operator==(const Rejection&) const = default;
};

// Thrown while a request is read; caught where the answer is written.
class RequestError : public std::runtime_error {
 public:
  RequestError(Reason reason, const std::string& message) : std::runtime_error(message), reason_(reason) {}
  Reason reason() const { return reason_; }

 private:
  Reason reason_;
};

// Row-major elements without padding, little-endian, not necessarily aligned. The owner keeps the bytes
// alive.
struct Tensor {
  std::string name;
  spec::Dtype dtype = spec::Dtype::f32;
  spec::Shape shape;
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
};

struct TensorSpec {
  static constexpr int64_t kAny = -1;  // a variable dimension
  std::string name;
  spec::Dtype dtype = spec::Dtype::f32;
  spec::Shape shape;
  spec::Shape example;  // inputs: a shape that the model takes, of one row where it is joinable
  bool operator==(const TensorSpec&) const = default;
};

struct ModelInfo {
  std::string name, version, platform;
  std::vector<TensorSpec> inputs, outputs;
  // Rows, that is sizes of the first dimension, may be joined and split. Otherwise requests run one by one.
  bool joinable = false;
  int64_t max_rows = 1;  // of one run, where joinable
  bool operator==(const ModelInfo&) const = default;
};

struct RequestedOutput {
  std::string name;
  std::optional<bool> binary;  // unset: InferRequest::binary_outputs
  bool operator==(const RequestedOutput&) const = default;
};

struct InferRequest {
  std::string model, version;  // no version: the newest
  std::string id;              // echoed
  std::vector<Tensor> inputs;
  std::vector<RequestedOutput> outputs;  // empty: all
  bool binary_outputs = false;
  int64_t priority = 0;               // 1 is the highest, 0 the default, which comes after all others
  std::optional<int64_t> timeout_us;  // longest wait in the queue
};

struct InferResponse {
  std::string model, version, id;
  std::vector<Tensor> outputs;
};

using InferResult = std::variant<InferResponse, Rejection>;
using Done = std::function<void(InferResult)>;  // called exactly once, from any thread; must not block

}  // namespace trireme::serve

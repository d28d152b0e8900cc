#pragma once
// What runs a model: one instance, used by one thread at a time.
#include <memory>
#include <vector>

#include "trireme/serve/values.h"

namespace trireme::serve {

// One input of a run: the pieces lie end to end along the first dimension and fill `shape`.
struct RunInput {
  spec::Shape shape;
  std::vector<std::span<const std::byte>> pieces;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const ModelInfo& info() const = 0;
  // Inputs and outputs in the model's order. Throws Error: input when the values are at fault (an index out
  // of range).
  virtual std::vector<Tensor> run(const std::vector<RunInput>& inputs) = 0;
  // Called once by the thread that will call run().
  virtual void adopt_thread() {}
};
using Instances = std::vector<std::unique_ptr<Backend>>;

}  // namespace trireme::serve

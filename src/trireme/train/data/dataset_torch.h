#pragma once
// Samples from files, as tensors in the order of the graph's user inputs.
#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/spec/graph.h"
#include "trireme/train/options.h"

namespace trireme::train {

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t samples() const = 0;
  // One tensor per user input, first dimension = ids.size(). Thread-safe.
  virtual std::vector<at::Tensor> batch(std::span<const int64_t> ids) const = 0;
  // Where the graph's input of that number has this sample from, for messages: "book.bin, sample 12".
  virtual std::string place(size_t input, int64_t id) const = 0;
};

struct Datasets {
  std::unique_ptr<Dataset> training;
  std::unique_ptr<Dataset> evaluation;  // null: nothing held out
};

// Opens what `options` names and checks it against the graph's user inputs (count, dtype, shape). Errors name
// file or key.
//   bytes, tokens: sample i is the window of `context` tokens at i x context, and the window one later
//   eval_share s: the last s of the samples are held out
Datasets open_datasets(const DataOptions& options, const spec::Graph& graph);

}  // namespace trireme::train

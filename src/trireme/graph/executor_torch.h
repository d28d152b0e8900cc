#pragma once
// Runs a spec::Graph with LibTorch: each operator is resolved once through the dispatcher, then called boxed.
//   Program   immutable: graph, resolved operators, argument templates, last-use table. Shared by executors.
//   Executor  one set of parameters and buffers. Several may run side by side on one Program.
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trireme/graph/flops.h"
#include "trireme/graph/pt2_reader.h"
#include "trireme/spec/graph.h"
#include "trireme/tensor/tensor_view.h"

namespace trireme::graph {

class Program {
 public:
  // Error(unsupported) for operators that cannot be run: names node, operator and the recorded Python line.
  static std::shared_ptr<const Program> load(const std::filesystem::path& path);
  static std::shared_ptr<const Program> from(std::shared_ptr<const Pt2File> file);
  ~Program();
  const spec::Graph& graph() const;
  const Pt2File& file() const;
  // Where the loss stands among the values that Executor::run returns: the loss output, else the first float
  // scalar output; -1 when there is none.
  int loss_output() const;

 private:
  friend class Executor;
  struct State;  // program_torch.h
  explicit Program(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

enum class Mode : uint8_t {
  train,      // autograd records; dropout and batch norm as exported
  evaluate,   // no gradients; arguments named train/training are false, dropout_p is 0, buffers are left as
              // they were
  inference,  // as exported, in inference mode
};

struct ExecutorOptions {
  tensor::Device device;
  // Weights in place of the archive's, by parameter or buffer name; empty: the archive's.
  std::filesystem::path
      weights;               // a safetensors file, or a checkpoint's step folder (model.safetensors inside)
  bool load_weights = true;  // false: parameters are left uninitialised (another rank will broadcast them)
  std::vector<std::string> freeze;  // regular expressions over parameter names
};

// A named parameter; tied names share one tensor and appear once, under the first name, with the others in
// `aliases`.
struct Parameter {
  std::string name;
  at::Tensor tensor;
  std::vector<std::string> aliases;
};

class Executor {
 public:
  Executor(std::shared_ptr<const Program> program, const ExecutorOptions& options);
  ~Executor();
  const Program& program() const;
  // In the graph's order. requires_grad as exported, less the frozen ones.
  const std::vector<Parameter>& parameters() const;
  const std::vector<Parameter>& buffers() const;  // persistent ones first; constants are not listed

  // User inputs in the graph's order; outputs in the graph's order of user and loss outputs. A tensor on
  // another device is copied to the executor's. What the graph changes, it changes in place: buffers, and
  // inputs of the caller. Error(input) for a wrong count, dtype or shape, naming the input and what was
  // expected; Error(unsupported) for Mode::train on a graph that holds its own backward pass. Errors of
  // operators name node and Python line. Not reentrant; use one Executor per thread.
  std::vector<c10::IValue> run(const std::vector<c10::IValue>& inputs, Mode mode);

  // A contiguous run of nodes [begin, end) with named boundary values, re-runnable (activation checkpointing,
  // pipeline). Running it again also repeats what its in-place operators do to buffers.
  struct Segment {
    size_t begin = 0, end = 0;
    std::vector<std::string> inputs;   // values made before `begin` or given by the user, read inside
    std::vector<std::string> outputs;  // values made inside, read after `end` or by the graph's outputs
  };
  Segment segment(size_t begin, size_t end) const;
  std::vector<c10::IValue> run_segment(const Segment& segment, const std::vector<c10::IValue>& inputs,
                                       Mode mode);

  // Called for each node after it ran (profiling, NaN search); empty: off.
  using NodeObserver = std::function<void(const spec::Node&, const std::vector<c10::IValue>& outputs)>;
  void observe(NodeObserver observer);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::graph

// Runs a `.pt2` once on given inputs and writes what came of it, for comparison with PyTorch:
//   graph_run MODEL.pt2 INPUTS.safetensors RESULT.safetensors [--mode train] [--segment-splits K] [--repeat
//   N]
// INPUTS holds the user inputs by name (integers as tensors without dimensions). RESULT holds "output.I",
// after training "grad.NAME" of each parameter, and "buffer.NAME" as the run left it.
#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <iostream>

#include "trireme/base/error.h"
#include "trireme/graph/executor_torch.h"
#include "trireme/tensor/adaptor_torch.h"
#include "trireme/tensor/safetensors.h"

namespace trireme::graph {
namespace {

using c10::IValue;

struct Options {
  std::string model, inputs, result, weights;
  std::map<std::string, Mode> modes{
      {"train", Mode::train}, {"evaluate", Mode::evaluate}, {"inference", Mode::inference}};
  Mode mode = Mode::train;
  size_t segments = 1;
  int repeat = 1;
};

std::vector<IValue> read_inputs(const spec::Graph& graph, const std::string& path) {
  const tensor::SafetensorsFile file(path);
  std::vector<IValue> inputs;
  for (const auto& input : graph.inputs) {
    if (input.kind != spec::InputKind::user) continue;
    const auto found = file.entries().find(input.name);
    if (found == file.entries().end()) fail(ErrorCode::input, path, ": input '", input.name, "' is missing");
    const auto& entry = found->second;
    tensor::TensorView view{
        const_cast<std::byte*>(entry.bytes.data()), spec::count(entry.shape), entry.dtype, {}};
    const at::Tensor value = tensor::tensor_over(view, entry.shape).clone();
    const bool number = graph.values[static_cast<size_t>(input.value)].kind == spec::ValueKind::sym_int;
    inputs.push_back(number ? IValue(value.item().toLong()) : IValue(value));
  }
  return inputs;
}

// As a pipeline would: each segment sees only the named values that its segment lists.
std::vector<IValue> run_in_segments(Executor& executor, const std::vector<IValue>& inputs, Mode mode,
                                    size_t segments) {
  const auto& graph = executor.program().graph();
  std::map<std::string, IValue> values;
  auto next = inputs.begin();
  for (const auto& input : graph.inputs)
    if (input.kind == spec::InputKind::user) values[input.name] = *next++;
  for (size_t k = 0; k < segments; ++k) {
    const auto segment =
        executor.segment(graph.nodes.size() * k / segments, graph.nodes.size() * (k + 1) / segments);
    std::vector<IValue> given;
    for (const auto& name : segment.inputs) given.push_back(values.at(name));
    const auto made = executor.run_segment(segment, given, mode);
    for (size_t i = 0; i < made.size(); ++i) values[segment.outputs[i]] = made[i];
  }
  std::vector<IValue> outputs;
  for (const auto& output : graph.outputs) {
    if (output.kind != spec::OutputKind::user && output.kind != spec::OutputKind::loss) continue;
    const auto* ref = std::get_if<spec::ValueRef>(&output.value);
    outputs.push_back(ref ? values[graph.values[static_cast<size_t>(ref->id)].name] : IValue());
  }
  return outputs;
}

class Result {
 public:
  void add(const std::string& name, const IValue& value) {
    if (value.isTensor() && value.toTensor().defined()) add(name, value.toTensor());
    if (value.isInt()) add(name, at::tensor(value.toInt()));
    if (value.isDouble()) add(name, at::tensor(value.toDouble(), at::kDouble));
  }
  void write(const std::string& path) const { tensor::write_safetensors(path, entries_); }
  void add(const std::string& name, const at::Tensor& value) {
    const at::Tensor kept = tensors_.emplace_back(value.detach().cpu().contiguous());
    const auto view = tensor::view_of(kept);
    entries_[name] = {view.dtype, {kept.sizes().begin(), kept.sizes().end()}, view.raw()};
  }

 private:
  std::vector<at::Tensor> tensors_;
  std::map<std::string, tensor::SafetensorsEntry> entries_;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void run(const Options& options) {
  const auto start = std::chrono::steady_clock::now();
  const auto program = Program::load(options.model);
  ExecutorOptions executor_options;
  executor_options.weights = options.weights;
  Executor executor(program, executor_options);
  std::cerr << "loaded in " << seconds_since(start) << " s, " << forward_flops(program->graph())
            << " flops\n";

  const auto inputs = read_inputs(program->graph(), options.inputs);
  std::vector<IValue> outputs;
  for (int i = 0; i < options.repeat; ++i) {
    for (const auto& p : executor.parameters()) p.tensor.mutable_grad().reset();
    const auto step = std::chrono::steady_clock::now();
    outputs = options.segments == 1 ? executor.run(inputs, options.mode)
                                    : run_in_segments(executor, inputs, options.mode, options.segments);
    if (options.mode == Mode::train && program->loss_output() >= 0)
      tensor::translate_torch_errors(options.model + ": backward", [&] {
        outputs.at(static_cast<size_t>(program->loss_output())).toTensor().backward();
      });
    if (options.repeat > 1) std::cerr << "step " << i << ": " << seconds_since(step) << " s\n";
  }

  Result result;
  for (size_t i = 0; i < outputs.size(); ++i) result.add(cat("output.", i), outputs[i]);
  for (const auto& p : executor.parameters())
    if (p.tensor.grad().defined()) result.add("grad." + p.name, p.tensor.grad());
  for (const auto& b : executor.buffers()) result.add("buffer." + b.name, b.tensor);
  result.write(options.result);
}

}  // namespace
}  // namespace trireme::graph

int main(int argc, char** argv) {
  trireme::graph::Options options;
  CLI::App app("Runs a .pt2 once and writes outputs, gradients and buffers");
  app.add_option("model", options.model)->required();
  app.add_option("inputs", options.inputs)->required();
  app.add_option("result", options.result)->required();
  app.add_option("--weights", options.weights, "safetensors file in place of the archive's weights");
  app.add_option("--mode", options.mode)->transform(CLI::CheckedTransformer(options.modes));
  app.add_option("--segment-splits", options.segments, "run as this many consecutive segments")
      ->check(CLI::PositiveNumber);
  app.add_option("--repeat", options.repeat, "run this often, and print the times")
      ->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  try {
    trireme::graph::run(options);
    return 0;
  } catch (const trireme::Error& e) {
    std::cerr << "[" << trireme::name(e.code()) << "] " << e.what() << "\n";
    return trireme::exit_code(e.code());
  }
}

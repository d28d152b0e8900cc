#include "trireme/graph/executor_torch.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <optional>
#include <set>

#include "trireme/base/error.h"
#include "trireme/graph/interpreter_torch.h"
#include "trireme/graph/program_torch.h"
#include "trireme/graph/weights_torch.h"
#include "trireme/tensor/adaptor_torch.h"

namespace trireme::graph {
namespace {

using c10::IValue;
using spec::InputKind;
using spec::OutputKind;
using spec::ValueId;

c10::Device to_device(tensor::Device device) {
  if (device.kind == tensor::Device::Kind::cpu) return c10::kCPU;
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(device.index)};
}

bool is_returned(OutputKind kind) {
  return kind == OutputKind::user || kind == OutputKind::loss;
}

// A contiguous run of nodes, ready to run.
struct Range {
  size_t begin = 0, end = 0;
  std::vector<ValueId> inputs, outputs;
  std::vector<std::vector<ValueId>> dead;
  // Buffers that its evaluation writes, found during the first; nothing else need be put back after later
  // ones.
  std::optional<std::vector<at::Tensor>> written_buffers;
};

// Grad mode for one run.
class ModeGuard {
 public:
  explicit ModeGuard(Mode mode) {
    if (mode == Mode::inference)
      inference_.emplace(true);
    else
      gradients_.emplace(mode == Mode::train);
  }

 private:
  std::optional<c10::InferenceMode> inference_;
  std::optional<c10::AutoGradMode> gradients_;
};

}  // namespace

struct Executor::State {
  std::shared_ptr<const Program> program;
  const Program::State& shared;
  const spec::Graph& graph;
  std::string where;  // the model's path, for errors
  c10::Device device;
  Weights weights;
  std::vector<Instruction> as_exported, for_evaluation;  // the second is made when first needed
  Range whole;
  std::map<std::pair<size_t, size_t>, Range> ranges;
  NodeObserver observer;

  State(std::shared_ptr<const Program> p, const ExecutorOptions& options)
      : program(std::move(p)),
        shared(*program->state_),
        graph(program->graph()),
        where(program->file().path().string()),
        device(to_device(options.device)),
        weights(load_weights(program->file(), options, device)),
        as_exported(instructions(false)),
        whole(make_range(0, graph.nodes.size())) {}

  std::vector<Instruction> instructions(bool evaluate) const {
    std::vector<Instruction> result;
    tensor::translate_torch_errors(where, [&] {
      try {
        result = make_instructions(graph, shared.resolved, {device, evaluate});
      } catch (const Error& e) {
        fail(e.code(), where, ": ", e.what());
      }
    });
    return result;
  }

  std::span<const Instruction> code(const Range& range, Mode mode) {
    if (mode == Mode::evaluate && for_evaluation.empty()) for_evaluation = instructions(true);
    const auto& all = mode == Mode::evaluate ? for_evaluation : as_exported;
    return std::span(all).subspan(range.begin, range.end - range.begin);
  }

  Range make_range(size_t begin, size_t end) const;
  Range& range(size_t begin, size_t end);
  const spec::GraphInput* mutated_input(const spec::GraphOutput& output) const;
  Frame make_frame(Mode mode) const;
  void check_mode(Mode mode) const;
  void put_user_inputs(const std::vector<IValue>& inputs, Frame& frame) const;
  void write_back(const Range& range, const Frame& frame, Mode mode);
  // Whatever ends at the outputs of a range, in either form of running it.
  Frame run(Range& range, Frame frame, Mode mode);
};

// What crosses its borders, in the order in which it is made (ids grow in that order).
Range Executor::State::make_range(size_t begin, size_t end) const {
  Range range{begin, end, {}, {}, {}, {}};
  std::set<ValueId> made, read, weight_values, read_later;
  for (size_t i = 0; i < graph.inputs.size(); ++i)
    if (weights.inputs[i].defined()) weight_values.insert(graph.inputs[i].value);
  const auto each = [](const spec::Node& node, auto&& on_input, auto&& on_output) {
    for (const auto& input : node.inputs) spec::for_each_value(input.value, on_input);
    for (const auto& output : node.outputs) spec::for_each_value(output, on_output);
  };
  for (size_t i = begin; i < end; ++i)
    each(
        graph.nodes[i], [&](ValueId id) { read.insert(id); }, [&](ValueId id) { made.insert(id); });
  std::vector<bool> kept(graph.values.size());
  for (size_t i = end; i < graph.nodes.size(); ++i)
    each(
        graph.nodes[i], [&](ValueId id) { read_later.insert(id); }, [](ValueId) {});
  for (const auto& output : graph.outputs) {
    spec::for_each_value(output.value, [&](ValueId id) {
      read_later.insert(id);
      kept[static_cast<size_t>(id)] = true;
      if (const auto* input = mutated_input(output); input != nullptr && made.contains(id)) {
        read.insert(input->value);
        kept[static_cast<size_t>(input->value)] = true;
      }
    });
  }
  for (const ValueId id : read)
    if (!made.contains(id) && !weight_values.contains(id)) range.inputs.push_back(id);
  for (const ValueId id : made)
    if (read_later.contains(id)) range.outputs.push_back(id);
  for (const ValueId id : range.outputs) kept[static_cast<size_t>(id)] = true;
  range.dead = dead_after(graph.nodes, begin, end, kept);
  return range;
}

Range& Executor::State::range(size_t begin, size_t end) {
  if (begin > end || end > graph.nodes.size())
    fail(ErrorCode::usage, where, ": there is no segment of nodes ", begin, " to ", end, "; the model has ",
         graph.nodes.size());
  const auto found = ranges.find({begin, end});
  if (found != ranges.end()) return found->second;
  return ranges.emplace(std::pair(begin, end), make_range(begin, end)).first->second;
}

// The input that an output of a functional graph replaces; null for other outputs.
const spec::GraphInput* Executor::State::mutated_input(const spec::GraphOutput& output) const {
  const auto find = [&](InputKind kind) -> const spec::GraphInput* {
    for (const auto& input : graph.inputs)
      if (input.kind == kind && input.name == output.name) return &input;
    fail(ErrorCode::input, where, ": an output changes '", output.name, "', which the graph does not have");
  };
  switch (output.kind) {
    case OutputKind::buffer_mutation:
      return find(InputKind::buffer);
    case OutputKind::parameter_mutation:
      return find(InputKind::parameter);
    case OutputKind::input_mutation:
      return find(InputKind::user);
    default:
      return nullptr;
  }
}

Frame Executor::State::make_frame(Mode mode) const {
  Frame frame(graph.values.size());
  for (size_t i = 0; i < graph.inputs.size(); ++i)
    if (weights.inputs[i].defined()) frame[static_cast<size_t>(graph.inputs[i].value)] = weights.inputs[i];
  // Autograd may save a buffer that write_back() changes; it must see the old values.
  for (const auto& output : graph.outputs)
    if (mode == Mode::train && output.kind == OutputKind::buffer_mutation) {
      auto& place = frame[static_cast<size_t>(mutated_input(output)->value)];
      place = place.toTensor().clone();
    }
  return frame;
}

void Executor::State::check_mode(Mode mode) const {
  if (mode == Mode::train && shared.has_backward)
    fail(ErrorCode::unsupported, where,
         ": the graph holds its own backward pass; to train, export the forward pass alone "
         "(trireme.export.training_graph)");
}

void Executor::State::put_user_inputs(const std::vector<IValue>& inputs, Frame& frame) const {
  std::vector<GivenInput> given;
  for (const auto& input : inputs) {
    GivenInput g;
    if (input.isTensor() && input.toTensor().defined()) {
      const auto& t = input.toTensor();
      g = {spec::ValueKind::tensor, tensor::from_torch(t.scalar_type()), t.sizes()};
    } else if (input.isInt()) {
      g.kind = spec::ValueKind::sym_int;
      g.number = input.toInt();
    } else {
      g.kind = input.isDouble() ? spec::ValueKind::sym_float
               : input.isBool() ? spec::ValueKind::sym_bool
                                : spec::ValueKind::object;
    }
    given.push_back(g);
  }
  try {
    shared.check_inputs(given);
  } catch (const Error& e) {
    fail(e.code(), where, ": ", e.what());
  }
  auto next = inputs.begin();
  for (const auto& input : graph.inputs) {
    if (input.kind != InputKind::user) continue;
    auto& place = frame[static_cast<size_t>(input.value)] = *next++;
    if (place.isTensor() && place.toTensor().device() != device) place = place.toTensor().to(device);
  }
}

// Functional graphs return the new values of what they change.
void Executor::State::write_back(const Range& range, const Frame& frame, Mode mode) {
  const at::NoGradGuard no_grad;
  for (const auto& output : graph.outputs) {
    const auto* ref = std::get_if<spec::ValueRef>(&output.value);
    if (ref == nullptr || !std::binary_search(range.outputs.begin(), range.outputs.end(), ref->id)) continue;
    const auto* input = mutated_input(output);
    if (input == nullptr || (mode == Mode::evaluate && input->kind != InputKind::user)) continue;
    const auto index = static_cast<size_t>(input - graph.inputs.data());
    const at::Tensor& weight = weights.inputs[index];
    const at::Tensor target = weight.defined() ? weight : frame[static_cast<size_t>(input->value)].toTensor();
    target.detach().copy_(frame[static_cast<size_t>(ref->id)].toTensor());
  }
}

namespace {

// Leaves buffers as they were before an evaluation, also when it fails. The first one copies all and learns,
// from their version counters, which were written; export forbids control flow to write, so later ones write
// the same.
class BufferKeeper {
 public:
  BufferKeeper(const std::vector<Parameter>& buffers, std::optional<std::vector<at::Tensor>>& written,
               bool active)
      : written_(written), active_(active) {
    if (!active_) return;
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> all;
    if (!written_)
      for (const auto& b : buffers) all.push_back(b.tensor);
    for (const auto& t : written_ ? *written_ : all) saved_.push_back({t, t.clone(), t._version()});
  }
  ~BufferKeeper() {
    if (!active_) return;
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> changed;
    for (auto& s : saved_) {
      if (s.tensor._version() == s.version) continue;
      s.tensor.copy_(s.copy);
      changed.push_back(s.tensor);
    }
    if (finished_ && !written_) written_ = std::move(changed);
  }
  BufferKeeper(const BufferKeeper&) = delete;
  BufferKeeper& operator=(const BufferKeeper&) = delete;
  void finished() { finished_ = true; }

 private:
  struct Saved {
    at::Tensor tensor, copy;
    int64_t version;
  };
  std::optional<std::vector<at::Tensor>>& written_;
  bool active_, finished_ = false;
  std::vector<Saved> saved_;
};

IValue output_value(const spec::Argument& value, const Frame& frame) {
  if (const auto* ref = std::get_if<spec::ValueRef>(&value)) return frame[static_cast<size_t>(ref->id)];
  if (const auto* number = std::get_if<int64_t>(&value)) return *number;
  if (const auto* number = std::get_if<double>(&value)) return *number;
  if (const auto* truth = std::get_if<bool>(&value)) return *truth;
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  return {};
}

}  // namespace

Frame Executor::State::run(Range& range, Frame frame, Mode mode) {
  BufferKeeper keeper(weights.buffers, range.written_buffers, mode == Mode::evaluate);
  Interpreter(frame, mode == Mode::train, observer).run(code(range, mode), range.dead, where);
  write_back(range, frame, mode);
  keeper.finished();
  return frame;
}

Executor::Executor(std::shared_ptr<const Program> program, const ExecutorOptions& options)
    : state_(std::make_unique<State>(std::move(program), options)) {}
Executor::~Executor() = default;
const Program& Executor::program() const {
  return *state_->program;
}
const std::vector<Parameter>& Executor::parameters() const {
  return state_->weights.parameters;
}
const std::vector<Parameter>& Executor::buffers() const {
  return state_->weights.buffers;
}
void Executor::observe(NodeObserver observer) {
  state_->observer = std::move(observer);
}

std::vector<IValue> Executor::run(const std::vector<IValue>& inputs, Mode mode) {
  State& s = *state_;
  s.check_mode(mode);
  const ModeGuard guard(mode);
  Frame frame = s.make_frame(mode);
  s.put_user_inputs(inputs, frame);
  frame = s.run(s.whole, std::move(frame), mode);
  std::vector<IValue> outputs;
  for (const auto& output : s.graph.outputs)
    if (is_returned(output.kind)) outputs.push_back(output_value(output.value, frame));
  return outputs;
}

Executor::Segment Executor::segment(size_t begin, size_t end) const {
  const auto& range = state_->range(begin, end);
  Segment segment{begin, end, {}, {}};
  const auto name = [this](ValueId id) { return state_->graph.values[static_cast<size_t>(id)].name; };
  for (const ValueId id : range.inputs) segment.inputs.push_back(name(id));
  for (const ValueId id : range.outputs) segment.outputs.push_back(name(id));
  return segment;
}

std::vector<IValue> Executor::run_segment(const Segment& segment, const std::vector<IValue>& inputs,
                                          Mode mode) {
  State& s = *state_;
  s.check_mode(mode);
  Range& range = s.range(segment.begin, segment.end);
  if (inputs.size() != range.inputs.size())
    fail(ErrorCode::usage, s.where, ": nodes ", segment.begin, " to ", segment.end, " take ",
         range.inputs.size(), " values, ", inputs.size(), " were given");
  const ModeGuard guard(mode);
  Frame frame = s.make_frame(mode);
  for (size_t i = 0; i < inputs.size(); ++i) frame[static_cast<size_t>(range.inputs[i])] = inputs[i];
  frame = s.run(range, std::move(frame), mode);
  std::vector<IValue> outputs;
  for (const ValueId id : range.outputs) outputs.push_back(frame[static_cast<size_t>(id)]);
  return outputs;
}

}  // namespace trireme::graph

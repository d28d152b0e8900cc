#include "trireme/graph/executor_torch.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/graph/test_archive.h"
#include "trireme/tensor/adaptor_torch.h"
#include "trireme/tensor/safetensors.h"

namespace trireme::graph {
namespace {

using c10::IValue;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;
using testing::UnorderedElementsAre;

std::filesystem::path data(const std::string& name) {
  return std::filesystem::path(TRIREME_TEST_DATA) / name;
}

// A model and what PyTorch computed from it (tests/data/make_pt2.py).
class Recorded {
 public:
  explicit Recorded(const std::string& name)
      : program(Program::load(data(name + ".pt2"))),
        executor(program, {}),
        file_(data(name + ".safetensors")) {}

  at::Tensor tensor(const std::string& name) const {
    const auto& entry = file_.entries().at(name);
    at::Tensor result = at::zeros(entry.shape, tensor::to_torch(entry.dtype));
    std::memcpy(result.data_ptr(), entry.bytes.data(), entry.bytes.size());
    return result;
  }
  bool has(const std::string& name) const { return file_.entries().contains(name); }

  std::vector<IValue> inputs() const {
    std::vector<IValue> inputs;
    for (const auto& input : program->graph().inputs) {
      if (input.kind != spec::InputKind::user) continue;
      const at::Tensor value = tensor("input." + input.name);
      const auto kind = program->graph().values[static_cast<size_t>(input.value)].kind;
      inputs.push_back(kind == spec::ValueKind::tensor ? IValue(value) : IValue(value.item().toLong()));
    }
    return inputs;
  }
  // Every recorded result of this prefix, and no other, is given.
  void expect_outputs(const std::string& prefix, const std::vector<IValue>& outputs) const {
    for (size_t i = 0; i < outputs.size(); ++i) {
      const std::string name = cat(prefix, ".", i);
      ASSERT_EQ(has(name), !outputs[i].isNone()) << name;
      if (outputs[i].isTensor()) {
        expect_close(name, outputs[i].toTensor(), tensor(name));
      } else if (!outputs[i].isNone()) {
        EXPECT_EQ(outputs[i].toScalar().toDouble(), tensor(name).item().toDouble()) << name;
      }
    }
    EXPECT_FALSE(has(cat(prefix, ".", outputs.size())));
  }
  void expect_gradients() const {
    for (const auto& p : executor.parameters()) {
      ASSERT_EQ(p.tensor.grad().defined(), has("grad." + p.name)) << p.name;
      if (p.tensor.grad().defined()) expect_close(p.name, p.tensor.grad(), tensor("grad." + p.name));
    }
  }
  // What the graph changes of its caller's inputs.
  void expect_inputs(const std::vector<IValue>& inputs) const {
    auto next = inputs.begin();
    for (const auto& input : program->graph().inputs) {
      if (input.kind != spec::InputKind::user) continue;
      if (next->isTensor()) expect_close(input.name, next->toTensor(), tensor("after." + input.name));
      ++next;
    }
  }
  void expect_buffers() const {
    for (const auto& b : executor.buffers()) expect_close(b.name, b.tensor, tensor("buffer." + b.name));
  }
  at::Tensor loss(const std::vector<IValue>& outputs) const {
    return outputs.at(static_cast<size_t>(program->loss_output())).toTensor();
  }

  std::shared_ptr<const Program> program;
  Executor executor;

 private:
  static void expect_close(const std::string& name, const at::Tensor& ours, const at::Tensor& theirs) {
    ASSERT_EQ(ours.sizes(), theirs.sizes()) << name;
    EXPECT_TRUE(at::allclose(ours.to(at::kDouble), theirs.to(at::kDouble), 1e-5, 1e-7))
        << name << ours << theirs;
  }
  tensor::SafetensorsFile file_;
};

std::vector<at::Tensor> copies(const std::vector<Parameter>& all) {
  std::vector<at::Tensor> result;
  for (const auto& p : all) result.push_back(p.tensor.detach().clone());
  return result;
}
bool equal(const std::vector<Parameter>& all, const std::vector<at::Tensor>& before) {
  for (size_t i = 0; i < all.size(); ++i)
    if (!all[i].tensor.detach().equal(before[i])) return false;
  return true;
}

// As a pipeline would run it: each segment is given only the values that it names.
std::vector<IValue> run_in_segments(Executor& executor, const std::vector<IValue>& inputs, Mode mode,
                                    size_t parts) {
  const auto& graph = executor.program().graph();
  std::map<std::string, IValue> values;
  auto next = inputs.begin();
  for (const auto& input : graph.inputs)
    if (input.kind == spec::InputKind::user) values[input.name] = *next++;
  for (size_t k = 0; k < parts; ++k) {
    const auto segment =
        executor.segment(graph.nodes.size() * k / parts, graph.nodes.size() * (k + 1) / parts);
    std::vector<IValue> given;
    for (const auto& name : segment.inputs) given.push_back(values.at(name));
    const auto made = executor.run_segment(segment, given, mode);
    for (size_t i = 0; i < made.size(); ++i) values[segment.outputs[i]] = made[i];
  }
  std::vector<IValue> outputs;
  for (const auto& output : graph.outputs)
    if (const auto* ref = std::get_if<spec::ValueRef>(&output.value);
        ref && output.kind == spec::OutputKind::user)
      outputs.push_back(values.at(graph.values[static_cast<size_t>(ref->id)].name));
  return outputs;
}

class EachModel : public testing::TestWithParam<const char*> {};

TEST_P(EachModel, TrainsAsPyTorchDoes) {
  Recorded model(GetParam());
  const auto inputs = model.inputs();
  const auto outputs = model.executor.run(inputs, Mode::train);
  model.expect_outputs("output", outputs);
  model.loss(outputs).backward();
  model.expect_gradients();
  model.expect_buffers();
  model.expect_inputs(inputs);
}

TEST_P(EachModel, TrainsInSegmentsAsInOnePiece) {
  for (const size_t parts : {2, 3, 7}) {
    Recorded model(GetParam());
    const auto inputs = model.inputs();
    const auto outputs = run_in_segments(model.executor, inputs, Mode::train, parts);
    outputs.at(0).toTensor().backward();
    model.expect_gradients();
    model.expect_buffers();
    model.expect_inputs(inputs);
  }
}

TEST_P(EachModel, EvaluatesAsPyTorchDoesAndLeavesBuffersAlone) {
  Recorded model(GetParam());
  const auto before = copies(model.executor.buffers());
  for (int again = 0; again < 2; ++again) {
    const auto outputs = model.executor.run(model.inputs(), Mode::evaluate);
    model.expect_outputs("evaluate", outputs);
    EXPECT_FALSE(model.loss(outputs).requires_grad());
    EXPECT_TRUE(equal(model.executor.buffers(), before));
  }
}

TEST_P(EachModel, InferenceGivesTheExportedResults) {
  Recorded model(GetParam());
  const auto outputs = model.executor.run(model.inputs(), Mode::inference);
  model.expect_outputs("output", outputs);
  EXPECT_TRUE(model.loss(outputs).is_inference());
}

TEST_P(EachModel, RunsAgainAndBesideOthers) {
  Recorded model(GetParam());
  Executor other(model.program, {});
  std::vector<IValue> beside;
  std::thread thread([&] { beside = other.run(model.inputs(), Mode::train); });
  model.loss(model.executor.run(model.inputs(), Mode::train)).backward();
  thread.join();
  model.expect_outputs("output", beside);
  // The second backward adds to the first.
  const auto first = copies({{"", model.executor.parameters().back().tensor.grad(), {}}});
  model.loss(model.executor.run(model.inputs(), Mode::train)).backward();
  EXPECT_TRUE(at::allclose(model.executor.parameters().back().tensor.grad(), first[0].mul(2), 1e-4, 1e-6));
}

INSTANTIATE_TEST_SUITE_P(All, EachModel,
                         testing::Values("mlp", "tied", "convnet", "functional", "lstm", "regions", "loop",
                                         "arguments", "mutating"));

TEST(Vmap, RunsAsPyTorchDoesInOnePiece) {
  for (const Mode mode : {Mode::train, Mode::evaluate, Mode::inference}) {
    Recorded model("vmapped");
    const auto outputs = model.executor.run(model.inputs(), mode);
    model.expect_outputs("output", outputs);
    if (mode != Mode::train) continue;
    model.loss(outputs).backward();
    model.expect_gradients();
  }
}

TEST(Vmap, CannotBeCutAndLeavesNothingOpen) {
  Recorded model("vmapped");
  const auto& nodes = model.program->graph().nodes;
  const auto enter = std::find_if(nodes.begin(), nodes.end(), [](const auto& n) {
    return n.target.ends_with("_vmap_increment_nesting");
  });
  ASSERT_NE(enter, nodes.end());
  const auto segment = model.executor.segment(0, static_cast<size_t>(enter - nodes.begin()) + 1);
  EXPECT_THAT([&] { model.executor.run_segment(segment, model.inputs(), Mode::train); },
              ThrowsMessage<Error>(HasSubstr("inside a torch.vmap region")));
  model.expect_outputs("output", model.executor.run(model.inputs(), Mode::train));
}

TEST(Executor, FreesDeadValuesAfterTheirLastReader) {
  Recorded model("mlp");
  size_t most = 0;
  std::vector<c10::weak_intrusive_ptr<at::TensorImpl>> made;
  model.executor.observe([&](const spec::Node&, const std::vector<IValue>& outputs) {
    for (const auto& o : outputs) made.emplace_back(o.toTensor().getIntrusivePtr());
    std::set<const at::TensorImpl*> alive;
    for (const auto& m : made)
      if (!m.expired()) alive.insert(m._unsafe_get_target());
    most = std::max(most, alive.size());
  });
  model.executor.run(model.inputs(), Mode::inference);
  // linear, gelu, dropout, linear, cross_entropy_loss: each value has one reader; logits are returned.
  EXPECT_EQ(made.size(), 5U);
  EXPECT_EQ(most, 2U);
}

TEST(Executor, ObservesEachNode) {
  Recorded model("mlp");
  std::vector<std::string> targets;
  model.executor.observe([&](const spec::Node& node, const auto&) { targets.push_back(node.target); });
  model.executor.run(model.inputs(), Mode::train);
  EXPECT_THAT(targets, ElementsAre("torch.ops.aten.linear.default", "torch.ops.aten.gelu.default",
                                   "torch.ops.aten.dropout.default", "torch.ops.aten.linear.default",
                                   "torch.ops.aten.cross_entropy_loss.default"));
  model.executor.observe({});
  model.executor.run(model.inputs(), Mode::train);
  EXPECT_EQ(targets.size(), 5U);
}

TEST(Executor, TiedNamesShareOneTensor) {
  Recorded model("tied");
  const auto& parameters = model.executor.parameters();
  ASSERT_EQ(parameters.size(), 3U);
  EXPECT_EQ(parameters[0].name, "embed.weight");
  EXPECT_THAT(parameters[0].aliases, ElementsAre("head.weight"));
}

TEST(Executor, PersistentBuffersComeFirst) {
  Recorded model("tied");
  const auto& buffers = model.executor.buffers();
  ASSERT_EQ(buffers.size(), 2U);
  EXPECT_EQ(buffers[0].name, "calls");
  EXPECT_EQ(buffers[1].name, "mask");
}

TEST(Executor, ParametersAreItsOwnMemory) {
  const auto program = Program::load(data("mlp.pt2"));
  Executor first(program, {}), second(program, {});
  first.parameters()[0].tensor.detach().fill_(7);
  EXPECT_FALSE(first.parameters()[0].tensor.equal(second.parameters()[0].tensor));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first.parameters()[0].tensor.data_ptr()) % 64, 0U);
}

TEST(Executor, FreezesByPatternAndKeepsWhatWasFrozen) {
  const auto program = Program::load(data("mlp.pt2"));
  ExecutorOptions options;
  options.freeze = {"^down"};
  const Executor executor(program, options);
  std::vector<std::string> trained;
  for (const auto& p : executor.parameters())
    if (p.tensor.requires_grad()) trained.push_back(p.name);
  EXPECT_THAT(trained, ElementsAre("up.weight"));
  options.freeze = {"nothing"};
  EXPECT_THAT([&] { Executor(program, options); },
              ThrowsMessage<Error>(HasSubstr("'nothing' matches no parameter")));
  options.freeze = {"("};
  EXPECT_THAT([&] { Executor(program, options); },
              ThrowsMessage<Error>(HasSubstr("not a regular expression")));
}

TEST(Executor, RefusesInputsTheModelWasNotExportedFor) {
  Recorded model("mlp");
  const auto run = [&](std::vector<IValue> inputs) { model.executor.run(inputs, Mode::train); };
  const at::Tensor labels = at::zeros({5}, at::kLong);
  EXPECT_THAT(
      [&] {
        run({at::ones({5, 4})});
      },
      ThrowsMessage<Error>(HasSubstr("the model takes 2: x, labels")));
  EXPECT_THAT(
      [&] {
        run({at::ones({5, 3}), labels});
      },
      ThrowsMessage<Error>(HasSubstr("input 'x', dimension 1 is 3")));
  EXPECT_THAT(
      [&] {
        run({at::ones({70, 4}), at::zeros({70}, at::kLong)});
      },
      ThrowsMessage<Error>(HasSubstr("allowed is 2 to 64")));
  EXPECT_THAT(
      [&] {
        run({at::ones({6, 4}), labels});
      },
      ThrowsMessage<Error>(HasSubstr("must equal input 'x'")));
  EXPECT_THAT(
      [&] {
        run({at::ones({5, 4}, at::kDouble), labels});
      },
      ThrowsMessage<Error>(HasSubstr("type f64, the model takes f32")));
  EXPECT_THAT([&] { run({at::Tensor(), labels}); }, ThrowsMessage<Error>(HasSubstr("input 'x' is")));
}

TEST(Executor, AFailingOperatorIsNamedWithItsPythonLine) {
  Recorded model("mlp");
  const std::vector<IValue> inputs{at::ones({2, 4}), at::tensor({0, 7}, at::kLong)};  // there are 3 classes
  EXPECT_THAT([&] { model.executor.run(inputs, Mode::train); },
              ThrowsMessage<Error>(AllOf(
                  HasSubstr("mlp.pt2: node 'cross_entropy_loss' (aten::cross_entropy_loss), make_pt2.py:"),
                  HasSubstr("in forward: return"), Not(HasSubstr("\n")))));
}

TEST(Program, RefusesOperatorsOfPythonAtLoad) {
  EXPECT_THAT(
      [] { Program::load(data("of_python.pt2")); },
      ThrowsMessage<Error>(AllOf(HasSubstr("of_python.pt2: node 'twice' (trireme_test::twice), make_pt2.py:"),
                                 HasSubstr("registered by a Python package"))));
}

// The archive with its graph changed.
void write_changed(TestFile& file, const std::string& from, const std::string& to) {
  auto archive = TestArchive::of(data("mlp.pt2"));
  auto& text = archive.entry("models/model.json").data;
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  file.write(archive.bytes());
}

TEST(Program, RefusesOperatorsThatPyTorchDoesNotHave) {
  TestFile file;
  write_changed(file, "aten.gelu.default", "aten.gelu.novel");
  EXPECT_THAT([&] { Program::load(file.path()); },
              ThrowsMessage<Error>(AllOf(HasSubstr("(aten::gelu.novel)"), HasSubstr("does not have it"))));
  write_changed(file, "torch.ops.aten.gelu.default", "torch.ops.higher_order.novel");
  EXPECT_THAT([&] { Program::load(file.path()); },
              ThrowsMessage<Error>(HasSubstr("higher-order operator is not supported")));
}

TEST(Executor, RefusesArgumentsThatTheOperatorDoesNotTake) {
  TestFile file;
  write_changed(file, "\"approximate\"", "\"precision\"");
  EXPECT_THAT(
      [&] { Executor(Program::load(file.path()), {}); },
      ThrowsMessage<Error>(AllOf(HasSubstr("node 'gelu'"), HasSubstr("of which the operator knows 1"))));
  write_changed(file, "{\"as_string\": \"tanh\"}", "{\"as_ints\": [1]}");
  EXPECT_THAT([&] { Executor(Program::load(file.path()), {}); },
              ThrowsMessage<Error>(HasSubstr("node 'gelu'")));
  write_changed(file, "torch.ops.aten.gelu.default", "torch.ops.aten.add.Tensor");
  EXPECT_THAT([&] { Executor(Program::load(file.path()), {}); },
              ThrowsMessage<Error>(HasSubstr("argument 'other' is missing")));
}

// A safetensors file made of tensors.
class WeightsFile {
 public:
  explicit WeightsFile(const std::map<std::string, at::Tensor>& tensors) {
    std::map<std::string, tensor::SafetensorsEntry> entries;
    for (const auto& [name, t] : tensors) {
      const auto view = tensor::view_of(t);
      entries[name] = {view.dtype, {t.sizes().begin(), t.sizes().end()}, view.raw()};
    }
    tensor::write_safetensors(file_.path(), entries);
  }
  ExecutorOptions options() const {
    ExecutorOptions options;
    options.weights = file_.path();
    return options;
  }

 private:
  TestFile file_;
};

std::map<std::string, at::Tensor> mlp_weights() {
  return {{"up.weight", at::rand({8, 4})},
          {"up.bias", at::rand({8})},
          {"down.weight", at::rand({3, 8})},
          {"down.bias", at::rand({3})}};
}

TEST(Executor, TakesWeightsByNameFromAFile) {
  const auto weights = mlp_weights();
  const WeightsFile file(weights);
  const Executor executor(Program::load(data("mlp.pt2")), file.options());
  for (const auto& p : executor.parameters()) EXPECT_TRUE(p.tensor.equal(weights.at(p.name))) << p.name;
  EXPECT_FALSE(executor.parameters()[1].tensor.requires_grad()) << "frozen at export";
}

TEST(Executor, ConvertsBetweenFloatingTypes) {
  auto weights = mlp_weights();
  weights["up.weight"] = weights["up.weight"].to(at::kBFloat16);
  const WeightsFile file(weights);
  const Executor executor(Program::load(data("mlp.pt2")), file.options());
  EXPECT_TRUE(executor.parameters()[0].tensor.equal(weights["up.weight"].to(at::kFloat)));
}

TEST(Executor, NamesWeightsThatDoNotFit) {
  auto weights = mlp_weights();
  weights.erase("up.bias");
  weights["down.weights"] = at::rand({2});
  weights["down.weight"] = at::rand({8, 3});
  weights["down.bias"] = at::zeros({3}, at::kLong);
  const WeightsFile file(weights);
  const auto program = Program::load(data("mlp.pt2"));
  EXPECT_THAT(
      [&] { Executor(program, file.options()); },
      ThrowsMessage<Error>(AllOf(HasSubstr("missing: 'up.bias'"),
                                 HasSubstr("not in the model: 'down.weights' (did you mean 'down.weight'?)"),
                                 HasSubstr("'down.weight' ([8, 3] of f32, the model has [3, 8] of f32)"),
                                 HasSubstr("'down.bias' ([3] of i64"))));
}

TEST(Executor, TiedNamesNeedStandOnlyOnceInAFile) {
  const auto program = Program::load(data("tied.pt2"));
  std::map<std::string, at::Tensor> weights{{"head.weight", at::rand({11, 6})},
                                            {"mix.weight", at::rand({6, 6})},
                                            {"mix.bias", at::rand({6})},
                                            {"calls", at::ones({}, at::kLong)}};
  {
    const WeightsFile file(weights);
    const Executor executor(program, file.options());
    EXPECT_TRUE(executor.parameters()[0].tensor.equal(weights["head.weight"]));
    EXPECT_EQ(executor.buffers()[0].tensor.item().toLong(), 1);
  }
  weights["embed.weight"] = weights["head.weight"];
  {
    const WeightsFile file(weights);
    EXPECT_NO_THROW(Executor(program, file.options()));
  }
  weights["embed.weight"] = at::rand({11, 6});
  const WeightsFile file(weights);
  EXPECT_THAT([&] { Executor(program, file.options()); },
              ThrowsMessage<Error>(
                  HasSubstr("'embed.weight' and 'head.weight' are one tensor in the model, but differ")));
}

TEST(Executor, ReportsAMissingWeightsFile) {
  const auto program = Program::load(data("mlp.pt2"));
  ExecutorOptions options;
  options.weights = "/nowhere/w.safetensors";
  EXPECT_THAT([&] { Executor(program, options); }, ThrowsMessage<Error>(HasSubstr("/nowhere/w.safetensors")));
  options.weights = TRIREME_TEST_DATA;
  EXPECT_THAT([&] { Executor(program, options); },
              ThrowsMessage<Error>(HasSubstr("holds no model.safetensors")));
}

TEST(Executor, WithoutWeightsKeepsBuffersOfTheArchive) {
  ExecutorOptions options;
  options.load_weights = false;
  const Executor executor(Program::load(data("convnet.pt2")), options);
  for (const auto& b : executor.buffers())
    if (b.name == "norm.running_var") {
      EXPECT_TRUE(b.tensor.equal(at::ones({4})));
    }
  EXPECT_EQ(executor.parameters()[0].tensor.sizes(), (std::vector<int64_t>{4, 1, 3, 3}));
}

TEST(Segment, NamesWhatCrossesItsBorders) {
  Recorded model("mlp");
  const auto first = model.executor.segment(0, 2), second = model.executor.segment(2, 5),
             none = model.executor.segment(3, 3);
  EXPECT_THAT(first.inputs, ElementsAre("x"));
  EXPECT_THAT(first.outputs, ElementsAre("gelu"));
  EXPECT_THAT(second.inputs, UnorderedElementsAre("labels", "gelu"));
  EXPECT_THAT(second.outputs, ElementsAre("linear_1", "cross_entropy_loss"));
  EXPECT_THAT(none.inputs, IsEmpty());
  EXPECT_THROW(model.executor.segment(0, 6), Error);
  EXPECT_THROW(model.executor.segment(3, 2), Error);
  EXPECT_THROW(model.executor.run_segment(first, {}, Mode::train), Error);
}

TEST(Segment, RunsAgainForCheckpointing) {
  Recorded model("mlp");
  const auto segment = model.executor.segment(0, 2);
  const auto x = model.inputs()[0];
  const auto once = model.executor.run_segment(segment, {x}, Mode::train);
  const auto again = model.executor.run_segment(segment, {x}, Mode::train);
  EXPECT_TRUE(once[0].toTensor().equal(again[0].toTensor()));
  EXPECT_TRUE(once[0].toTensor().requires_grad());
}

TEST(Executor, AGraphWithItsOwnBackwardPassEvaluatesButDoesNotTrain) {
  Recorded model("joint");
  const auto outputs = model.executor.run(model.inputs(), Mode::evaluate);
  ASSERT_EQ(outputs.size(), 1U) << "gradients are not returned";
  EXPECT_NEAR(model.loss(outputs).item().toDouble(), model.tensor("evaluate.0").item().toDouble(), 1e-6);
  EXPECT_THAT(
      [&] { model.executor.run(model.inputs(), Mode::train); },
      ThrowsMessage<Error>(AllOf(HasSubstr("holds its own backward pass"), HasSubstr("training_graph"))));
}

TEST(Program, FindsTheLoss) {
  EXPECT_EQ(Program::load(data("mlp.pt2"))->loss_output(), 0);
  EXPECT_EQ(Program::load(data("functional.pt2"))->loss_output(), 0) << "changed buffers are not returned";
}

}  // namespace
}  // namespace trireme::graph

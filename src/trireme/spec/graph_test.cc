#include "trireme/spec/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "trireme/base/error.h"

namespace trireme::spec {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

// Every alternative of Argument once.
std::vector<Argument> all_arguments() {
  return {
      None{},
      ValueRef{1},
      ValueList{{0, kNoValue, 1}},
      NestedValues{{{0, 1}, {}}},
      int64_t{-7},
      0.5,
      true,
      std::string("tanh"),
      ComplexArg{1, -2},
      std::vector<int64_t>{1, 2},
      std::vector<double>{0.5, std::numeric_limits<double>::infinity()},
      std::vector<bool>{true, false},
      std::vector<std::string>{"a", "b"},
      std::vector<std::vector<int64_t>>{{1}, {2, 3}},
      std::vector<std::vector<double>>{{1.5}, {}},
      SymInts{{{4, kNoValue}, {0, 2}}},
      SymScalars{ValueKind::sym_float, {0.5, 0}, {kNoValue, 2}},
      SymScalars{ValueKind::sym_bool, {1}, {kNoValue}},
      EnumArg{EnumArg::Kind::dtype, 7},
      EnumArg{EnumArg::Kind::layout, 7},
      EnumArg{EnumArg::Kind::memory_format, 1},
      DeviceArg{"cuda", 1},
      OperatorArg{"torch.ops.aten.add.Tensor"},
      GraphArg{0},
      DictArg{{{"scale", 0.5}, {"mask", ValueRef{0}}}},
  };
}

Graph example() {
  Graph graph;
  graph.torch_version = "2.13.0";
  graph.training = true;
  graph.values = {
      {"w", ValueKind::tensor, Dtype::f32, {{3, ""}}, {{1, ""}}, {}, true, {}},
      {"x", ValueKind::tensor, Dtype::bf16, {{5, "s77"}, {3, ""}}, {{3, ""}, {1, ""}}, {}, false, {}},
      {"n", ValueKind::sym_int, Dtype::f32, {}, {}, {}, false, {15, "Mul(3, s77)"}},
  };
  Node node{"mul",      "torch.ops.aten.mul.Tensor",       {}, {ValueRef{1}, None{}},
            "blocks.0", "model.py:3 in forward: y = w * x"};
  for (const auto& argument : all_arguments())
    node.inputs.push_back({"argument", argument, node.inputs.size() % 2 == 1});
  graph.nodes = {node};
  graph.inputs = {{InputKind::parameter, 0, "layer.w", true},
                  {InputKind::buffer, 1, "mask", false},
                  {InputKind::literal, kNoValue, "flag", true}};
  graph.outputs = {{OutputKind::loss, ValueRef{1}, ""},
                   {OutputKind::buffer_mutation, ValueRef{1}, "mask"},
                   {OutputKind::user, int64_t{3}, ""}};
  graph.subgraphs = {{{0, 1}, {ValueRef{1}}, {node}, true}};
  graph.weights = {{"layer.w", {"data/weights/weight_0", Dtype::f32, {3}, {1}, 2, true}}};
  graph.ranges = {{"s77", {2, 64}}, {"u0", {0, std::nullopt}}};
  return graph;
}

TEST(GraphJson, ReadsBackToTheSameValue) {
  const Graph graph = example();
  const Graph read = graph_from_json(to_json(graph));
  EXPECT_EQ(read, graph);
  EXPECT_EQ(to_json(read), to_json(graph));
}

TEST(GraphJson, EachArgumentKeepsItsKind) {
  for (const auto& argument : all_arguments()) {
    Graph graph = example();
    graph.nodes[0].inputs = {{"only", argument, false}};
    const auto read = graph_from_json(to_json(graph)).nodes[0].inputs[0].value;
    EXPECT_EQ(read.index(), argument.index()) << to_json(graph);
    EXPECT_EQ(read, argument);
  }
}

TEST(GraphJson, RefusesAnotherKindVersionOrBrokenText) {
  const std::string text = to_json(example());
  const auto replaced = [&text](const std::string& from, const std::string& to) {
    std::string copy = text;
    copy.replace(copy.find(from), from.size(), to);
    return copy;
  };
  EXPECT_THROW(graph_from_json(text.substr(0, text.size() / 2)), Error);
  EXPECT_THROW(graph_from_json("[]"), Error);
  EXPECT_THAT([&] { graph_from_json(replaced("\"version\":1", "\"version\":2")); },
              ThrowsMessage<Error>(HasSubstr("version 2")));
  EXPECT_THROW(graph_from_json(replaced("\"kind\":\"graph\"", "\"kind\":\"plan\"")), Error);
}

TEST(GraphJson, RefusesReferencesToNothing) {
  Graph graph = example();
  graph.nodes[0].inputs = {{"self", ValueRef{3}, false}};
  EXPECT_THAT([&] { graph_from_json(to_json(graph)); }, ThrowsMessage<Error>(HasSubstr("no value 3")));
  graph.nodes[0].inputs = {{"body", GraphArg{1}, false}};
  EXPECT_THAT([&] { graph_from_json(to_json(graph)); }, ThrowsMessage<Error>(HasSubstr("no subgraph 1")));
}

TEST(GraphListing, NamesValuesAndShapes) {
  const std::string text = to_text(example());
  EXPECT_THAT(text, HasSubstr("parameter layer.w -> w: f32[3]"));
  EXPECT_THAT(text, HasSubstr("x: bf16[s77, 3], None = torch.ops.aten.mul.Tensor("));
  EXPECT_THAT(text, HasSubstr("[4, n]"));
  EXPECT_THAT(text, HasSubstr("return x -> mask"));
  EXPECT_THAT(text, HasSubstr("subgraph 0(w, x)"));
}

TEST(GraphFingerprint, IgnoresSourceLinesOnly) {
  const Graph graph = example();
  Graph moved = graph;
  moved.nodes[0].source_line = "elsewhere.py:9";
  moved.subgraphs[0].nodes[0].source_line.clear();
  EXPECT_EQ(fingerprint(moved), fingerprint(graph));
  Graph changed = graph;
  changed.nodes[0].inputs[4].value = int64_t{-8};
  EXPECT_NE(fingerprint(changed), fingerprint(graph));
  changed = graph;
  changed.ranges["s77"].maximum = 65;
  EXPECT_NE(fingerprint(changed), fingerprint(graph));
}

TEST(Arguments, TellTheValuesTheyRead) {
  std::vector<ValueId> read;
  for (const auto& argument : all_arguments())
    for_each_value(argument, [&](ValueId id) { read.push_back(id); });
  EXPECT_THAT(read, ElementsAre(1, 0, 1, 0, 1, 2, 2, 0));
}

}  // namespace
}  // namespace trireme::spec

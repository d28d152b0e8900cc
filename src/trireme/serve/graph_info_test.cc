#include "trireme/serve/graph_info.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::serve {
namespace {

spec::Value tensor(const std::string& name, spec::Dtype dtype, std::vector<spec::Dim> sizes) {
  spec::Value v;
  v.name = name;
  v.dtype = dtype;
  v.sizes = std::move(sizes);
  return v;
}

// x [s0, 4] -> y [s0, 2]
spec::Graph graph() {
  spec::Graph g;
  g.values = {tensor("x", spec::Dtype::f32, {{2, "s0"}, {4, ""}}),
              tensor("y", spec::Dtype::f32, {{2, "s0"}, {2, ""}})};
  g.inputs = {{spec::InputKind::user, 0, "x", true}};
  g.outputs = {{spec::OutputKind::user, spec::ValueRef{1}, ""}};
  g.ranges["s0"] = {1, 64};
  return g;
}

TEST(GraphInfo, DescribesInputsAndOutputs) {
  const auto info = describe_graph(graph());
  EXPECT_TRUE(info.joinable);
  EXPECT_EQ(info.max_rows, 64);
  EXPECT_EQ(info.inputs, (std::vector<TensorSpec>{{"x", spec::Dtype::f32, {-1, 4}, {1, 4}}}));
  EXPECT_EQ(info.outputs, (std::vector<TensorSpec>{{"output_0", spec::Dtype::f32, {-1, 2}, {}}}));
}

TEST(GraphInfo, RowsAreNotJoinedUnlessAllShareOneSymbol) {
  auto fixed = graph();
  fixed.values[0].sizes[0] = {2, ""};
  EXPECT_FALSE(describe_graph(fixed).joinable);
  auto other = graph();
  other.values[1].sizes[0].symbol = "2*s0";
  EXPECT_FALSE(describe_graph(other).joinable);
  auto scalar = graph();
  scalar.values[1].sizes.clear();
  EXPECT_FALSE(describe_graph(scalar).joinable);
  auto stateful = graph();
  stateful.outputs.push_back({spec::OutputKind::buffer_mutation, spec::ValueRef{1}, "calls"});
  EXPECT_FALSE(describe_graph(stateful).joinable);
}

TEST(GraphInfo, NoneIsLeftOutAndNumbersAreTensors) {
  auto g = graph();
  g.outputs.push_back({spec::OutputKind::user, spec::None{}, ""});
  g.outputs.push_back({spec::OutputKind::user, int64_t{7}, ""});
  const auto info = describe_graph(g);
  ASSERT_EQ(info.outputs.size(), 2u);
  EXPECT_EQ(info.outputs[1], (TensorSpec{"output_2", spec::Dtype::i64, {1}, {}}));
}

TEST(GraphInfo, RefusesWhatCannotBeSent) {
  auto number = graph();
  number.values[0].kind = spec::ValueKind::sym_int;
  EXPECT_THROW(describe_graph(number), Error);
  auto complex = graph();
  complex.values[0].dtype = spec::Dtype::c64;
  EXPECT_THROW(describe_graph(complex), Error);
}

}  // namespace
}  // namespace trireme::serve

#include "trireme/graph/flops.h"

#include <gtest/gtest.h>

namespace trireme::graph {
namespace {

// Graphs of one node: values are added as they are named.
class OneNode {
 public:
  explicit OneNode(const std::string& target) { node_.target = "torch.ops.aten." + target; }
  OneNode& in(const std::vector<int64_t>& sizes) {
    node_.inputs.push_back({"", spec::ValueRef{value(sizes)}, false});
    return *this;
  }
  OneNode& list(const std::vector<std::vector<int64_t>>& all) {
    spec::ValueList list;
    for (const auto& sizes : all) list.ids.push_back(value(sizes));
    node_.inputs.push_back({"", list, false});
    return *this;
  }
  OneNode& text(const std::string& text) {
    node_.inputs.push_back({"", text, false});
    return *this;
  }
  double out(const std::vector<int64_t>& sizes) {
    node_.outputs.push_back(spec::ValueRef{value(sizes)});
    graph_.nodes = {node_};
    return forward_flops(graph_);
  }

 private:
  spec::ValueId value(const std::vector<int64_t>& sizes) {
    spec::Value v;
    for (const auto size : sizes) v.sizes.push_back({size, ""});
    graph_.values.push_back(v);
    return static_cast<spec::ValueId>(graph_.values.size()) - 1;
  }
  spec::Graph graph_;
  spec::Node node_;
};

TEST(Flops, MatrixProducts) {
  EXPECT_EQ(OneNode("linear.default").in({2, 3, 4}).in({5, 4}).in({5}).out({2, 3, 5}), 2 * 2 * 3 * 4 * 5);
  EXPECT_EQ(OneNode("matmul.default").in({2, 3, 4}).in({2, 4, 5}).out({2, 3, 5}), 2 * 2 * 3 * 4 * 5);
  EXPECT_EQ(OneNode("addmm.default").in({5}).in({3, 4}).in({4, 5}).out({3, 5}), 2 * 3 * 4 * 5);
  EXPECT_EQ(OneNode("einsum.default").text("bij,bjk->bik").list({{2, 3, 4}, {2, 4, 5}}).out({2, 3, 5}),
            2 * 2 * 3 * 4 * 5);
}

TEST(Flops, Convolutions) {
  EXPECT_EQ(OneNode("conv2d.default").in({2, 6, 8, 8}).in({4, 3, 3, 3}).out({2, 4, 6, 6}),
            2 * (2 * 4 * 6 * 6) * (3 * 3 * 3));
  EXPECT_EQ(OneNode("conv_transpose2d.input").in({2, 4, 6, 6}).in({4, 3, 3, 3}).out({2, 3, 8, 8}),
            2 * (2 * 4 * 6 * 6) * (3 * 3 * 3));
}

TEST(Flops, Attention) {
  const double products = 2.0 * (2 * 4) * (5 * 7 * 8) + 2.0 * (2 * 4) * (5 * 7 * 6);
  EXPECT_EQ(OneNode("scaled_dot_product_attention.default")
                .in({2, 4, 5, 8})
                .in({2, 4, 7, 8})
                .in({2, 4, 7, 6})
                .out({2, 4, 5, 6}),
            products);
}

TEST(Flops, RecurrentCells) {
  EXPECT_EQ(OneNode("lstm.input")
                .in({2, 3, 5})
                .list({{1, 3, 4}, {1, 3, 4}})
                .list({{16, 5}, {16, 4}, {16}, {16}})
                .out({2, 3, 4}),
            2.0 * (2 * 3) * (16 * 5 + 16 * 4));
  EXPECT_EQ(OneNode("gru_cell.default").in({3, 5}).in({3, 4}).in({12, 5}).in({12, 4}).out({3, 4}),
            2.0 * 3 * (12 * 5 + 12 * 4));
}

TEST(Flops, OtherOperatorsCountNothing) {
  EXPECT_EQ(OneNode("add.Tensor").in({2, 3}).in({2, 3}).out({2, 3}), 0);
  EXPECT_EQ(forward_flops({}), 0);
}

}  // namespace
}  // namespace trireme::graph

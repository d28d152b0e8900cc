#include "trireme/graph/flops.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace trireme::graph {
namespace {

using spec::Graph;
using spec::Node;
using spec::ValueId;
using Sizes = std::vector<double>;  // doubles: products of sizes overflow integers

Sizes sizes_of(const Graph& graph, ValueId id) {
  Sizes sizes;
  if (id == spec::kNoValue) return sizes;
  // A size that depends on data counts once.
  for (const auto& dim : graph.values.at(static_cast<size_t>(id)).sizes)
    sizes.push_back(static_cast<double>(std::max<int64_t>(dim.hint, dim.hint == spec::kNoHint ? 1 : 0)));
  return sizes;
}
double product(const Sizes& sizes, size_t from = 0) {
  double result = 1;
  for (size_t i = from; i < sizes.size(); ++i) result *= sizes[i];
  return result;
}

// The values that a node reads, in order, lists flattened.
struct Operands {
  Operands(const Graph& graph, const Node& node) {
    for (const auto& input : node.inputs)
      spec::for_each_value(input.value, [&](ValueId id) { inputs.push_back(sizes_of(graph, id)); });
    for (const auto& output : node.outputs)
      spec::for_each_value(output, [&](ValueId id) { outputs.push_back(sizes_of(graph, id)); });
  }
  const Sizes& in(size_t i) const { return i < inputs.size() ? inputs[i] : none; }
  const Sizes& out() const { return outputs.empty() ? none : outputs[0]; }
  std::vector<Sizes> inputs, outputs;
  Sizes none;
};

// [.., n, k] x [.., k, m]: each output element is a sum over k, the last extent of the left side.
double matrix_product(const Operands& o, size_t left) {
  return o.in(left).empty() ? 0 : 2 * product(o.out()) * o.in(left).back();
}
// Weights [out channels, in channels / groups, kernel …]: each output element is a sum over all but the
// first.
double convolution(const Operands& o) {
  return 2 * product(o.out()) * product(o.in(1), 1);
}
// Each input element is scaled by all of [out channels / groups, kernel …].
double transposed_convolution(const Operands& o) {
  return 2 * product(o.in(0)) * product(o.in(1), 1);
}
// Query [.., L, E], key [.., S, E], value [.., S, V].
double attention(const Operands& o) {
  const auto &q = o.in(0), &k = o.in(1), &v = o.in(2);
  if (q.size() < 2 || k.size() < 2 || v.empty()) return 0;
  return 2 * product(q) * k[k.size() - 2] +
         2 * product(q) / std::max(q.back(), 1.0) * k[k.size() - 2] * v.back();
}
// Input [T, B, F] or [B, T, F]; every matrix among the weights is used once per step and sample.
double recurrent(const Operands& o) {
  const auto& x = o.in(0);
  if (x.size() < 2) return 0;
  double matrices = 0;
  for (size_t i = 1; i < o.inputs.size(); ++i)
    if (o.in(i).size() == 2) matrices += product(o.in(i));
  return 2 * product(x) / std::max(x.back(), 1.0) * matrices;
}
// Input [B, F]; the states are [B, H], the weights have another first extent in general, so they are told by
// position.
double recurrent_cell(const Operands& o, size_t states) {
  const auto& x = o.in(0);
  return x.empty() ? 0 : 2 * x[0] * (product(o.in(1 + states)) + product(o.in(2 + states)));
}

struct Rule {
  std::string_view name;  // aten operator, without overload
  double (*flops)(const Operands&);
};
constexpr std::array kRules{
    Rule{"linear", [](const Operands& o) { return matrix_product(o, 0); }},
    Rule{"matmul", [](const Operands& o) { return matrix_product(o, 0); }},
    Rule{"mm", [](const Operands& o) { return matrix_product(o, 0); }},
    Rule{"bmm", [](const Operands& o) { return matrix_product(o, 0); }},
    Rule{"mv", [](const Operands& o) { return matrix_product(o, 0); }},
    Rule{"dot", [](const Operands& o) { return matrix_product(o, 0); }},
    Rule{"addmm", [](const Operands& o) { return matrix_product(o, 1); }},
    Rule{"baddbmm", [](const Operands& o) { return matrix_product(o, 1); }},
    Rule{"conv1d", convolution},
    Rule{"conv2d", convolution},
    Rule{"conv3d", convolution},
    Rule{"convolution", convolution},
    Rule{"conv_transpose1d", transposed_convolution},
    Rule{"conv_transpose2d", transposed_convolution},
    Rule{"conv_transpose3d", transposed_convolution},
    Rule{"scaled_dot_product_attention", attention},
    Rule{"_scaled_dot_product_flash_attention_for_cpu", attention},
    Rule{"_scaled_dot_product_efficient_attention", attention},
    Rule{"_scaled_dot_product_flash_attention", attention},
    Rule{"lstm", recurrent},
    Rule{"gru", recurrent},
    Rule{"rnn_tanh", recurrent},
    Rule{"rnn_relu", recurrent},
    Rule{"lstm_cell", [](const Operands& o) { return recurrent_cell(o, 2); }},
    Rule{"gru_cell", [](const Operands& o) { return recurrent_cell(o, 1); }},
    Rule{"rnn_tanh_cell", [](const Operands& o) { return recurrent_cell(o, 1); }},
    Rule{"rnn_relu_cell", [](const Operands& o) { return recurrent_cell(o, 1); }},
};

// "bhid,bhjd->bhij": one multiply-add per combination of all letters.
double einsum(const Graph& graph, const Node& node) {
  const auto* equation = node.inputs.empty() ? nullptr : std::get_if<std::string>(&node.inputs[0].value);
  if (equation == nullptr) return 0;
  const Operands operands(graph, node);
  std::map<char, double> extents;
  size_t operand = 0, at = 0;
  for (const char c : equation->substr(0, equation->find("->"))) {
    if (c == ',') {
      ++operand;
      at = 0;
    } else if (c != ' ' && at < operands.in(operand).size()) {
      extents[c] = operands.in(operand)[at++];
    }
  }
  double result = 2;
  for (const auto& [letter, extent] : extents) result *= extent;
  return result;
}

double node_flops(const Graph& graph, const Node& node) {
  constexpr std::string_view kAten = "torch.ops.aten.";
  std::string_view name = node.target;
  if (!name.starts_with(kAten)) return 0;
  name.remove_prefix(kAten.size());
  name = name.substr(0, name.find('.'));
  if (name == "einsum") return einsum(graph, node);
  for (const auto& rule : kRules)
    if (rule.name == name) return rule.flops(Operands(graph, node));
  return 0;
}

}  // namespace

double forward_flops(const Graph& graph) {
  double total = 0;
  for (const auto& node : graph.nodes) total += node_flops(graph, node);
  for (const auto& body : graph.subgraphs)
    for (const auto& node : body.nodes) total += node_flops(graph, node);
  return total;
}

}  // namespace trireme::graph

#include "trireme/serve/graph_info.h"

#include <algorithm>
#include <limits>

#include "trireme/base/error.h"
#include "trireme/serve/datatypes.h"

namespace trireme::serve {
namespace {

using spec::Value;
using spec::ValueKind;

void check_type(const char* kind, const std::string& name, spec::Dtype dtype) {
  if (datatype_name(dtype).empty())
    fail(ErrorCode::unsupported, kind, " '", name, "' is ", spec::name(dtype),
         ", which the inference protocol does not know");
}

TensorSpec describe(const std::string& name, const Value& value) {
  TensorSpec t{name, value.dtype, {}, {}};
  for (const auto& size : value.sizes) {
    t.shape.push_back(size.symbol.empty() ? size.hint : TensorSpec::kAny);
    t.example.push_back(size.hint);
  }
  return t;
}

// The symbol that is the value's first size; "" when there is none.
std::string first_symbol(const Value& value) {
  if (value.kind != ValueKind::tensor || value.sizes.empty()) return "";
  return value.sizes[0].symbol;
}

TensorSpec describe_output(const std::string& name, const spec::GraphOutput& output,
                           const spec::Graph& graph) {
  const auto number = [&](spec::Dtype dtype) { return TensorSpec{name, dtype, {1}, {}}; };
  if (const auto* ref = std::get_if<spec::ValueRef>(&output.value)) {
    const Value& value = graph.values.at(static_cast<size_t>(ref->id));
    switch (value.kind) {
      case ValueKind::tensor: {
        TensorSpec t = describe(name, value);
        t.example.clear();
        return t;
      }
      case ValueKind::sym_int:
        return number(spec::Dtype::i64);
      case ValueKind::sym_float:
        return number(spec::Dtype::f64);
      case ValueKind::sym_bool:
        return number(spec::Dtype::boolean);
      case ValueKind::object:
        break;
    }
  }
  if (std::holds_alternative<int64_t>(output.value)) return number(spec::Dtype::i64);
  if (std::holds_alternative<double>(output.value)) return number(spec::Dtype::f64);
  if (std::holds_alternative<bool>(output.value)) return number(spec::Dtype::boolean);
  fail(ErrorCode::unsupported, "output '", name, "' is neither a tensor nor a number");
}

}  // namespace

ModelInfo describe_graph(const spec::Graph& graph) {
  ModelInfo info;
  std::string batch;
  info.joinable = true;
  for (const auto& input : graph.inputs) {
    if (input.kind == spec::InputKind::literal) continue;
    if (input.kind != spec::InputKind::user) continue;
    const Value& value = graph.values.at(static_cast<size_t>(input.value));
    if (value.kind != ValueKind::tensor)
      fail(ErrorCode::unsupported, "input '", input.name,
           "' is not a tensor; only tensors can be sent to a server");
    check_type("input", input.name, value.dtype);
    info.inputs.push_back(describe(input.name, value));
    const std::string symbol = first_symbol(value);
    if (batch.empty()) batch = symbol;
    info.joinable &= !symbol.empty() && symbol == batch;
  }
  size_t position = 0;
  for (const auto& output : graph.outputs) {
    const bool returned = output.kind == spec::OutputKind::user || output.kind == spec::OutputKind::loss;
    info.joinable &= returned;
    if (!returned) continue;
    const std::string name = cat("output_", position++);
    if (std::holds_alternative<spec::None>(output.value)) continue;
    info.outputs.push_back(describe_output(name, output, graph));
    check_type("output", name, info.outputs.back().dtype);
    const auto* ref = std::get_if<spec::ValueRef>(&output.value);
    info.joinable &= ref != nullptr && first_symbol(graph.values.at(static_cast<size_t>(ref->id))) == batch;
  }
  info.joinable &= !info.inputs.empty();
  if (info.outputs.empty()) fail(ErrorCode::unsupported, "the graph returns nothing");
  if (info.joinable) {
    for (auto& input : info.inputs) input.example[0] = 1;
    const auto range = graph.ranges.find(batch);
    info.max_rows = std::numeric_limits<int64_t>::max();
    if (range != graph.ranges.end()) info.max_rows = range->second.maximum.value_or(info.max_rows);
  }
  return info;
}

}  // namespace trireme::serve

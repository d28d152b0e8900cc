#pragma once
// A model as a value: what a `.pt2` file says, without torch. Read by graph/pt2_reader, executed by
// graph/executor, later clustered and sharded by plan/.
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trireme/spec/dtype.h"

namespace trireme::spec {

// Index into Graph::values.
using ValueId = int32_t;
inline constexpr ValueId kNoValue = -1;

enum class ValueKind : uint8_t { tensor, sym_int, sym_float, sym_bool, object };

// A size that may be symbolic: `hint` is the size seen at export, kNoHint where it depends on data; `symbol`
// is its expression, empty when constant: "s77", "Mul(3, s77)" (graph/sym_expr.h).
inline constexpr int64_t kNoHint = -1;
struct Dim {
  int64_t hint = 0;
  std::string symbol;
  bool operator==(const Dim&) const = default;
};

struct Value {
  std::string name;
  ValueKind kind = ValueKind::tensor;
  Dtype dtype = Dtype::f32;  // tensors only, as are the next four
  std::vector<Dim> sizes;
  std::vector<Dim> strides;
  Dim storage_offset;
  bool requires_grad = false;
  Dim number;  // sym_int only: its expression, and what it was at export
  bool operator==(const Value&) const = default;
};

// Argument alternatives of schema 8 that a C++ executor can meet.
struct None {
  bool operator==(const None&) const = default;
};
struct ValueRef {
  ValueId id = kNoValue;
  bool operator==(const ValueRef&) const = default;
};
struct IntOrRef {  // one element of a symbolic int list: a constant, or a value
  int64_t constant = 0;
  ValueId id = kNoValue;
  bool operator==(const IntOrRef&) const = default;
};
struct ValueList {  // kNoValue marks an absent optional tensor
  std::vector<ValueId> ids;
  bool operator==(const ValueList&) const = default;
};
struct SymInts {
  std::vector<IntOrRef> items;
  bool operator==(const SymInts&) const = default;
};
struct SymScalars {  // symbolic float or bool lists; where ids[i] is kNoValue, constants[i] counts
  ValueKind kind = ValueKind::sym_float;
  std::vector<double> constants;
  std::vector<ValueId> ids;
  bool operator==(const SymScalars&) const = default;
};
struct NestedValues {
  std::vector<std::vector<ValueId>> lists;
  bool operator==(const NestedValues&) const = default;
};
struct EnumArg {  // dtype, layout and memory format, by their serialised number
  enum class Kind : uint8_t { dtype, layout, memory_format } kind = Kind::dtype;
  int64_t value = 0;
  bool operator==(const EnumArg&) const = default;
};
struct DeviceArg {
  std::string type = "cpu";
  int64_t index = -1;
  bool operator==(const DeviceArg&) const = default;
};
struct ComplexArg {
  double real = 0, imag = 0;
  bool operator==(const ComplexArg&) const = default;
};
struct OperatorArg {
  std::string target;
  bool operator==(const OperatorArg&) const = default;
};
struct GraphArg {  // index into Graph::subgraphs
  int32_t subgraph = 0;
  bool operator==(const GraphArg&) const = default;
};
struct DictEntry;
struct DictArg {  // options of some higher-order operators
  std::vector<DictEntry> entries;
  bool operator==(const DictArg&) const;
};
using Argument =
    std::variant<None, ValueRef, ValueList, NestedValues, int64_t, double, bool, std::string, ComplexArg,
                 std::vector<int64_t>, std::vector<double>, std::vector<bool>, std::vector<std::string>,
                 std::vector<std::vector<int64_t>>, std::vector<std::vector<double>>, SymInts, SymScalars,
                 EnumArg, DeviceArg, OperatorArg, GraphArg, DictArg>;
struct DictEntry {
  std::string name;
  Argument value;
  bool operator==(const DictEntry&) const = default;
};
inline bool DictArg::operator==(const DictArg& other) const {
  return entries == other.entries;
}

struct NamedArgument {
  std::string name;
  Argument value;
  bool keyword = false;
  bool operator==(const NamedArgument&) const = default;
};

struct Node {
  std::string name;    // "linear_3"
  std::string target;  // "torch.ops.aten.linear.default", "_operator.mul"
  std::vector<NamedArgument> inputs;
  std::vector<Argument> outputs;  // ValueRef, ValueList or None
  std::string module_path;        // innermost nn.Module, e.g. "blocks.3.mlp"
  std::string source_line;        // the Python line recorded at export, "model.py:41 in forward: y = …"
  bool operator==(const Node&) const = default;
};

enum class InputKind : uint8_t { user, parameter, buffer, constant, literal };
struct GraphInput {
  InputKind kind = InputKind::user;
  ValueId value = kNoValue;  // kNoValue for literals
  std::string name;          // parameter, buffer or constant name; the argument's name for user inputs
  bool persistent = true;    // buffers: part of the state dict
  bool operator==(const GraphInput&) const = default;
};
enum class OutputKind : uint8_t {
  user,
  loss,
  buffer_mutation,
  input_mutation,
  parameter_gradient,
  input_gradient,
  parameter_mutation
};
struct GraphOutput {
  OutputKind kind = OutputKind::user;
  Argument value;    // ValueRef, or a literal for user outputs
  std::string name;  // mutated buffer or input, parameter of a gradient
  bool operator==(const GraphOutput&) const = default;
};

// Its values are numbered in Graph::values with all others; it reads only its inputs and what it makes
// itself.
struct Subgraph {
  std::vector<ValueId> inputs;
  std::vector<Argument> outputs;
  std::vector<Node> nodes;
  bool single_tensor = false;
  bool operator==(const Subgraph&) const = default;
};

// Where a weight lies: bytes of a whole storage, viewed with sizes, strides and offset (in elements). Tied
// weights carry the same `storage`.
struct Weight {
  std::string storage;  // archive record, "data/weights/weight_3"
  Dtype dtype = Dtype::f32;
  Shape sizes, strides;
  int64_t storage_offset = 0;
  bool requires_grad = true;
  bool operator==(const Weight&) const = default;
};

struct Range {
  std::optional<int64_t> minimum, maximum;
  bool operator==(const Range&) const = default;
};

struct Graph {
  static constexpr int kVersion = 1;
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<GraphInput> inputs;  // in the order of the archive's signature
  std::vector<GraphOutput> outputs;
  std::vector<Subgraph> subgraphs;
  std::map<std::string, Weight> weights;  // parameters, buffers and constants, by name
  std::map<std::string, Range> ranges;    // symbol -> range
  std::string torch_version;
  bool training = false;  // exported with composite operators kept, autograd applies
  bool operator==(const Graph&) const = default;
};

// Calls `read` for each value that the argument reads.
void for_each_value(const Argument& argument, const std::function<void(ValueId)>& read);

// JSON with "version" and "kind": "graph"; docs/reference/graph.md. from_json throws Error(input).
std::string to_json(const Graph& graph);
Graph graph_from_json(std::string_view text);
// A listing for people: one line a node, subgraphs below.
std::string to_text(const Graph& graph);
// 64-bit content hash over everything that decides results (not names of source lines); equal on all ranks of
// a run.
uint64_t fingerprint(const Graph& graph);

}  // namespace trireme::spec

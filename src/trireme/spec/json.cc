// The JSON form of spec::Graph; the schema page is docs/reference/graph.md.
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/json_problem.h"
#include "trireme/spec/graph.h"
#include "trireme/spec/json_guard.h"

namespace trireme::spec {
namespace {

using nlohmann::json;

constexpr std::array kValueKinds{"tensor", "sym_int", "sym_float", "sym_bool", "object"};
constexpr std::array kInputKinds{"user", "parameter", "buffer", "constant", "literal"};
constexpr std::array kOutputKinds{"user",
                                  "loss",
                                  "buffer_mutation",
                                  "input_mutation",
                                  "parameter_gradient",
                                  "input_gradient",
                                  "parameter_mutation"};
constexpr std::array kEnumKinds{"dtype", "layout", "memory_format"};

// Part of a value for an error's line.
std::string shown(const json& value) {
  return value.dump(-1, ' ', true).substr(0, 80);
}

template <typename Enum, size_t N>
std::string enum_name(const std::array<const char*, N>& names, Enum value) {
  return names.at(static_cast<size_t>(value));
}
template <typename Enum, size_t N>
Enum enum_value(const std::array<const char*, N>& names, const json& text) {
  for (size_t i = 0; i < N; ++i)
    if (text == names[i]) return static_cast<Enum>(i);
  fail(ErrorCode::input, "unknown kind ", shown(text));
}

template <typename Items, typename Write>
json array_of(const Items& items, Write write) {
  json result = json::array();
  for (const auto& item : items) result.push_back(write(item));
  return result;
}
template <typename T, typename Read>
std::vector<T> vector_of(const json& items, Read read) {
  if (!items.is_array()) fail(ErrorCode::input, "a list is needed, not ", shown(items));
  std::vector<T> result;
  result.reserve(items.size());
  for (const auto& item : items) result.push_back(read(item));
  return result;
}

int64_t integer(const json& value) {
  if (!value.is_number_integer()) fail(ErrorCode::input, "an integer is needed, not ", shown(value));
  return value.get<int64_t>();
}
ValueId id(const json& value) {
  const int64_t number = integer(value);
  if (number < kNoValue || number > std::numeric_limits<ValueId>::max())
    fail(ErrorCode::input, number, " is not the number of a value");
  return static_cast<ValueId>(number);
}
std::vector<ValueId> ids(const json& value) {
  return vector_of<ValueId>(value, id);
}
Shape integers(const json& value) {
  return vector_of<int64_t>(value, integer);
}

// JSON has no infinities and no NaN.
json write_double(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}
double read_double(const json& value) {
  if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (value == "inf") return std::numeric_limits<double>::infinity();
  if (value == "-inf") return -std::numeric_limits<double>::infinity();
  return value.get<double>();
}
std::vector<double> doubles(const json& value) {
  return vector_of<double>(value, read_double);
}

json write_dim(const Dim& dim) {
  if (dim.symbol.empty()) return dim.hint;
  return {{"symbol", dim.symbol}, {"hint", dim.hint}};
}
Dim read_dim(const json& value) {
  if (value.is_object()) return {integer(value.at("hint")), value.at("symbol").get<std::string>()};
  return {integer(value), ""};
}

json write(const Value& value) {
  json result{{"name", value.name}, {"kind", enum_name(kValueKinds, value.kind)}};
  if (value.kind == ValueKind::sym_int) result["number"] = write_dim(value.number);
  if (value.kind != ValueKind::tensor) return result;
  result["dtype"] = name(value.dtype);
  result["sizes"] = array_of(value.sizes, write_dim);
  result["strides"] = array_of(value.strides, write_dim);
  result["offset"] = write_dim(value.storage_offset);
  result["requires_grad"] = value.requires_grad;
  return result;
}
Value read_value(const json& in) {
  Value value;
  value.name = in.at("name").get<std::string>();
  value.kind = enum_value<ValueKind>(kValueKinds, in.at("kind"));
  if (value.kind == ValueKind::sym_int) value.number = read_dim(in.at("number"));
  if (value.kind != ValueKind::tensor) return value;
  value.dtype = dtype_from_name(in.at("dtype").get<std::string>());
  value.sizes = vector_of<Dim>(in.at("sizes"), read_dim);
  value.strides = vector_of<Dim>(in.at("strides"), read_dim);
  value.storage_offset = read_dim(in.at("offset"));
  value.requires_grad = in.at("requires_grad").get<bool>();
  return value;
}

json write(const Argument& argument);
Argument read_argument(const json& in);

// One function per alternative: an object with one key, which names the alternative.
struct ArgumentWriter {
  json operator()(None) const { return {{"none", true}}; }
  json operator()(const ValueRef& a) const { return {{"value", a.id}}; }
  json operator()(const ValueList& a) const { return {{"values", a.ids}}; }
  json operator()(const NestedValues& a) const { return {{"value_lists", a.lists}}; }
  json operator()(int64_t a) const { return {{"int", a}}; }
  json operator()(double a) const { return {{"float", write_double(a)}}; }
  json operator()(bool a) const { return {{"bool", a}}; }
  json operator()(const std::string& a) const { return {{"string", a}}; }
  json operator()(const ComplexArg& a) const {
    return {{"complex", json::array({write_double(a.real), write_double(a.imag)})}};
  }
  json operator()(const std::vector<int64_t>& a) const { return {{"ints", a}}; }
  json operator()(const std::vector<double>& a) const { return {{"floats", array_of(a, write_double)}}; }
  json operator()(const std::vector<bool>& a) const { return {{"bools", a}}; }
  json operator()(const std::vector<std::string>& a) const { return {{"strings", a}}; }
  json operator()(const std::vector<std::vector<int64_t>>& a) const { return {{"int_lists", a}}; }
  json operator()(const std::vector<std::vector<double>>& a) const {
    return {{"float_lists", array_of(a, [](const auto& list) { return array_of(list, write_double); })}};
  }
  json operator()(const SymInts& a) const {
    return {{"sym_ints", array_of(a.items, [](const IntOrRef& item) {
               return item.id == kNoValue ? json(item.constant) : json{{"value", item.id}};
             })}};
  }
  json operator()(const SymScalars& a) const {
    const char* key = a.kind == ValueKind::sym_bool ? "sym_bools" : "sym_floats";
    return {{key, {{"values", a.ids}, {"constants", array_of(a.constants, write_double)}}}};
  }
  json operator()(const EnumArg& a) const { return {{enum_name(kEnumKinds, a.kind), a.value}}; }
  json operator()(const DeviceArg& a) const { return {{"device", {{"type", a.type}, {"index", a.index}}}}; }
  json operator()(const OperatorArg& a) const { return {{"operator", a.target}}; }
  json operator()(const GraphArg& a) const { return {{"subgraph", a.subgraph}}; }
  json operator()(const DictArg& a) const {
    return {{"dict", array_of(a.entries, [](const DictEntry& e) {
               return json{{"name", e.name}, {"value", write(e.value)}};
             })}};
  }
};
json write(const Argument& argument) {
  return std::visit(ArgumentWriter{}, argument);
}

SymScalars read_scalars(const json& in, ValueKind kind) {
  SymScalars scalars{kind, doubles(in.at("constants")), ids(in.at("values"))};
  if (scalars.constants.size() != scalars.ids.size())
    fail(ErrorCode::input, "values and constants of a symbolic list differ in number");
  return scalars;
}

IntOrRef read_int_or_ref(const json& in) {
  if (in.is_object()) return {0, id(in.at("value"))};
  return {integer(in), kNoValue};
}

using ArgumentReader = Argument (*)(const json&);
struct NamedReader {
  std::string_view key;
  ArgumentReader read;
};
constexpr std::array kReaders{
    NamedReader{"none", [](const json&) -> Argument { return None{}; }},
    NamedReader{"value", [](const json& in) -> Argument { return ValueRef{id(in)}; }},
    NamedReader{"values", [](const json& in) -> Argument { return ValueList{ids(in)}; }},
    NamedReader{
        "value_lists",
        [](const json& in) -> Argument { return NestedValues{vector_of<std::vector<ValueId>>(in, ids)}; }},
    NamedReader{"int", [](const json& in) -> Argument { return integer(in); }},
    NamedReader{"float", [](const json& in) -> Argument { return read_double(in); }},
    NamedReader{"bool", [](const json& in) -> Argument { return in.get<bool>(); }},
    NamedReader{"string", [](const json& in) -> Argument { return in.get<std::string>(); }},
    NamedReader{"complex",
                [](const json& in) -> Argument {
                  return ComplexArg{read_double(in.at(0)), read_double(in.at(1))};
                }},
    NamedReader{"ints", [](const json& in) -> Argument { return integers(in); }},
    NamedReader{"floats", [](const json& in) -> Argument { return doubles(in); }},
    NamedReader{"bools", [](const json& in) -> Argument { return in.get<std::vector<bool>>(); }},
    NamedReader{"strings", [](const json& in) -> Argument { return in.get<std::vector<std::string>>(); }},
    NamedReader{"int_lists", [](const json& in) -> Argument { return vector_of<Shape>(in, integers); }},
    NamedReader{"float_lists",
                [](const json& in) -> Argument { return vector_of<std::vector<double>>(in, doubles); }},
    NamedReader{"sym_ints",
                [](const json& in) -> Argument { return SymInts{vector_of<IntOrRef>(in, read_int_or_ref)}; }},
    NamedReader{"sym_floats",
                [](const json& in) -> Argument { return read_scalars(in, ValueKind::sym_float); }},
    NamedReader{"sym_bools",
                [](const json& in) -> Argument { return read_scalars(in, ValueKind::sym_bool); }},
    NamedReader{"dtype",
                [](const json& in) -> Argument {
                  return EnumArg{EnumArg::Kind::dtype, integer(in)};
                }},
    NamedReader{"layout",
                [](const json& in) -> Argument {
                  return EnumArg{EnumArg::Kind::layout, integer(in)};
                }},
    NamedReader{"memory_format",
                [](const json& in) -> Argument {
                  return EnumArg{EnumArg::Kind::memory_format, integer(in)};
                }},
    NamedReader{"device",
                [](const json& in) -> Argument {
                  return DeviceArg{in.at("type").get<std::string>(), integer(in.at("index"))};
                }},
    NamedReader{"operator", [](const json& in) -> Argument { return OperatorArg{in.get<std::string>()}; }},
    NamedReader{"subgraph", [](const json& in) -> Argument { return GraphArg{id(in)}; }},
    NamedReader{"dict",
                [](const json& in) -> Argument {
                  return DictArg{vector_of<DictEntry>(in, [](const json& e) {
                    return DictEntry{e.at("name").get<std::string>(), read_argument(e.at("value"))};
                  })};
                }},
};

Argument read_argument(const json& in) {
  if (!in.is_object() || in.size() != 1)
    fail(ErrorCode::input, "an argument is an object with one key, not ", shown(in));
  const auto& key = in.begin().key();
  for (const auto& reader : kReaders)
    if (reader.key == key) return reader.read(in.begin().value());
  fail(ErrorCode::input, "unknown kind of argument '", key, "'");
}

json write(const Node& node) {
  json inputs = array_of(node.inputs, [](const NamedArgument& a) {
    return json{{"name", a.name}, {"value", write(a.value)}, {"keyword", a.keyword}};
  });
  return {{"name", node.name},
          {"target", node.target},
          {"inputs", std::move(inputs)},
          {"outputs", array_of(node.outputs, [](const Argument& a) { return write(a); })},
          {"module", node.module_path},
          {"source", node.source_line}};
}
Node read_node(const json& in) {
  Node node;
  node.name = in.at("name").get<std::string>();
  node.target = in.at("target").get<std::string>();
  node.inputs = vector_of<NamedArgument>(in.at("inputs"), [](const json& a) {
    return NamedArgument{a.at("name").get<std::string>(), read_argument(a.at("value")),
                         a.at("keyword").get<bool>()};
  });
  node.outputs = vector_of<Argument>(in.at("outputs"), read_argument);
  node.module_path = in.at("module").get<std::string>();
  node.source_line = in.at("source").get<std::string>();
  return node;
}

json write(const Subgraph& body) {
  return {{"inputs", body.inputs},
          {"outputs", array_of(body.outputs, [](const Argument& a) { return write(a); })},
          {"nodes", array_of(body.nodes, [](const Node& n) { return write(n); })},
          {"single_tensor", body.single_tensor}};
}
Subgraph read_subgraph(const json& in) {
  return {ids(in.at("inputs")), vector_of<Argument>(in.at("outputs"), read_argument),
          vector_of<Node>(in.at("nodes"), read_node), in.at("single_tensor").get<bool>()};
}

json write(const Weight& weight) {
  return {{"storage", weight.storage},       {"dtype", name(weight.dtype)},
          {"sizes", weight.sizes},           {"strides", weight.strides},
          {"offset", weight.storage_offset}, {"requires_grad", weight.requires_grad}};
}
Weight read_weight(const json& in) {
  return {in.at("storage").get<std::string>(),
          dtype_from_name(in.at("dtype").get<std::string>()),
          integers(in.at("sizes")),
          integers(in.at("strides")),
          integer(in.at("offset")),
          in.at("requires_grad").get<bool>()};
}

json write_bound(std::optional<int64_t> bound) {
  return bound ? json(*bound) : json(nullptr);
}
std::optional<int64_t> read_bound(const json& in) {
  if (in.is_null()) return std::nullopt;
  return integer(in);
}

// All numbers of values and subgraphs must lie in the lists, so that no reader of a graph need check again.
void check_references(const Graph& graph) {
  const auto check = [&graph](ValueId value) {
    if (value >= static_cast<ValueId>(graph.values.size()))
      fail(ErrorCode::input, "there is no value ", value);
  };
  const auto check_argument = [&](const Argument& a) {
    for_each_value(a, check);
    if (const auto* g = std::get_if<GraphArg>(&a);
        g && static_cast<size_t>(g->subgraph) >= graph.subgraphs.size())
      fail(ErrorCode::input, "there is no subgraph ", g->subgraph);
  };
  const auto check_nodes = [&](const std::vector<Node>& nodes) {
    for (const auto& node : nodes) {
      for (const auto& input : node.inputs) check_argument(input.value);
      for (const auto& output : node.outputs) check_argument(output);
    }
  };
  check_nodes(graph.nodes);
  for (const auto& input : graph.inputs) check(input.value);
  for (const auto& output : graph.outputs) check_argument(output.value);
  for (const auto& body : graph.subgraphs) {
    for (const ValueId input : body.inputs) check(input);
    for (const auto& output : body.outputs) check_argument(output);
    check_nodes(body.nodes);
  }
}

Graph read_graph(const json& in) {
  if (in.at("kind") != "graph") fail(ErrorCode::input, "kind is ", shown(in.at("kind")), ", not \"graph\"");
  if (in.at("version") != Graph::kVersion)
    fail(ErrorCode::unsupported, "version ", shown(in.at("version")), "; this build reads version ",
         Graph::kVersion);
  Graph graph;
  graph.torch_version = in.at("torch_version").get<std::string>();
  graph.training = in.at("training").get<bool>();
  graph.values = vector_of<Value>(in.at("values"), read_value);
  graph.nodes = vector_of<Node>(in.at("nodes"), read_node);
  graph.inputs = vector_of<GraphInput>(in.at("inputs"), [](const json& i) {
    return GraphInput{enum_value<InputKind>(kInputKinds, i.at("kind")), id(i.at("value")),
                      i.at("name").get<std::string>(), i.at("persistent").get<bool>()};
  });
  graph.outputs = vector_of<GraphOutput>(in.at("outputs"), [](const json& o) {
    return GraphOutput{enum_value<OutputKind>(kOutputKinds, o.at("kind")), read_argument(o.at("value")),
                       o.at("name").get<std::string>()};
  });
  graph.subgraphs = vector_of<Subgraph>(in.at("subgraphs"), read_subgraph);
  for (const auto& [name, weight] : in.at("weights").items()) graph.weights[name] = read_weight(weight);
  for (const auto& [symbol, range] : in.at("ranges").items())
    graph.ranges[symbol] = {read_bound(range.at("minimum")), read_bound(range.at("maximum"))};
  check_references(graph);
  return graph;
}

}  // namespace

std::string to_json(const Graph& graph) {
  json weights = json::object(), ranges = json::object();
  for (const auto& [name, weight] : graph.weights) weights[name] = write(weight);
  for (const auto& [symbol, range] : graph.ranges)
    ranges[symbol] = {{"minimum", write_bound(range.minimum)}, {"maximum", write_bound(range.maximum)}};
  json inputs = array_of(graph.inputs, [](const GraphInput& i) {
    return json{{"kind", enum_name(kInputKinds, i.kind)},
                {"value", i.value},
                {"name", i.name},
                {"persistent", i.persistent}};
  });
  json outputs = array_of(graph.outputs, [](const GraphOutput& o) {
    return json{{"kind", enum_name(kOutputKinds, o.kind)}, {"value", write(o.value)}, {"name", o.name}};
  });
  const json out{{"kind", "graph"},
                 {"version", Graph::kVersion},
                 {"torch_version", graph.torch_version},
                 {"training", graph.training},
                 {"values", array_of(graph.values, [](const Value& v) { return write(v); })},
                 {"nodes", array_of(graph.nodes, [](const Node& n) { return write(n); })},
                 {"inputs", std::move(inputs)},
                 {"outputs", std::move(outputs)},
                 {"subgraphs", array_of(graph.subgraphs, [](const Subgraph& s) { return write(s); })},
                 {"weights", std::move(weights)},
                 {"ranges", std::move(ranges)}};
  // Names come from Python, which allows text that is not UTF-8 only in theory; replace rather than throw.
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

Graph graph_from_json(std::string_view text) {
  try {
    check_json_depth(text);
    return read_graph(json::parse(text));
  } catch (const json::exception& e) {
    fail(ErrorCode::input, "graph: ", json_problem(e));
  } catch (const Error& e) {
    fail(e.code(), "graph: ", e.what());
  }
}

}  // namespace trireme::spec

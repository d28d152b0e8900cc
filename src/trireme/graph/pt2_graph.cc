#include "trireme/graph/pt2_graph.h"

#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/json_problem.h"
#include "trireme/base/log.h"
#include "trireme/graph/pt2_metadata.h"
#include "trireme/graph/sym_expr.h"
#include "trireme/spec/json_guard.h"

namespace trireme::graph {
namespace {

using nlohmann::json;
using spec::Argument;
using spec::Graph;
using spec::ValueId;
using spec::ValueKind;

constexpr int kMaxNesting = 50;  // of subgraphs and dictionaries; bounds recursion on a hostile file
constexpr int kStrided = 7;      // schema.Layout.Strided

// Part of a value for an error's line.
std::string shown(const json& value) {
  return value.dump(-1, ' ', true).substr(0, 80);
}

int64_t integer(const json& value) {
  if (!value.is_number_integer() ||
      (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}))
    fail(ErrorCode::input, "an integer of 64 bits is needed, not ", shown(value));
  return value.get<int64_t>();
}
std::string text(const json& value) {
  return value.get<std::string>();
}

// Infinities and NaN travel as text, since JSON has none.
double real(const json& value) {
  if (value.is_number()) return value.get<double>();
  if (value == "Infinity") return std::numeric_limits<double>::infinity();
  if (value == "-Infinity") return -std::numeric_limits<double>::infinity();
  if (value == "NaN") return std::numeric_limits<double>::quiet_NaN();
  fail(ErrorCode::input, "a number is needed, not ", shown(value));
}

template <typename T, typename Read>
std::vector<T> list(const json& items, Read read) {
  if (!items.is_array()) fail(ErrorCode::input, "a list is needed, not ", shown(items));
  std::vector<T> result;
  result.reserve(items.size());
  for (const auto& item : items) result.push_back(read(item));
  return result;
}
spec::Shape integers(const json& items) {
  return list<int64_t>(items, integer);
}

// A tagged union has exactly one key.
struct Union {
  explicit Union(const json& in) {
    if (!in.is_object() || in.size() != 1)
      fail(ErrorCode::input, "a tagged value is needed, not ", shown(in));
    tag = in.begin().key();
    value = &in.begin().value();
  }
  std::string tag;
  const json* value = nullptr;
};

spec::Dtype dtype(const json& value) {
  return dtype_from_schema(integer(value));
}

spec::Dim dim(const json& in) {
  const Union u(in);
  if (u.tag == "as_int") return {integer(*u.value), ""};
  if (u.tag != "as_expr") fail(ErrorCode::input, "a size is needed, not ", shown(in));
  spec::Dim result{spec::kNoHint, to_text(parse_sym_expr(text(u.value->at("expr_str"))))};
  if (const auto hint = u.value->find("hint"); hint != u.value->end() && !hint->is_null())
    result.hint = integer(hint->at("as_int"));
  return result;
}

void check_strided(const json& meta) {
  if (integer(meta.at("layout")) != kStrided)
    fail(ErrorCode::unsupported, "only strided tensors are supported, not layout ", shown(meta.at("layout")));
}

spec::DeviceArg device(const json& in) {
  spec::DeviceArg result{text(in.at("type")), -1};
  if (const auto index = in.find("index"); index != in.end() && !index->is_null())
    result.index = integer(*index);
  return result;
}

// The values of one graph by name. Subgraphs have their own names and share nothing with the outer graph.
class Scope {
 public:
  Scope(Graph& graph, const json& description) : graph_(graph), description_(description) {}

  ValueId read(const std::string& name) const {
    const auto found = ids_.find(name);
    if (found == ids_.end()) fail(ErrorCode::input, "value '", name, "' is read before it is made");
    return found->second;
  }

  ValueId make(const std::string& name, ValueKind kind) {
    if (graph_.values.size() >= size_t{std::numeric_limits<ValueId>::max()})
      fail(ErrorCode::input, "too many values");
    const auto id = static_cast<ValueId>(graph_.values.size());
    if (!ids_.emplace(name, id).second) fail(ErrorCode::input, "value '", name, "' is made twice");
    spec::Value value;
    value.name = name;
    value.kind = kind;
    if (kind == ValueKind::tensor) describe(value);
    if (kind == ValueKind::sym_int) value.number = dim(described("sym_int_values", name));
    graph_.values.push_back(std::move(value));
    return id;
  }

 private:
  const json& described(const char* table, const std::string& name) const {
    const json& values = description_.at(table);
    const auto found = values.find(name);
    if (found == values.end()) fail(ErrorCode::input, "value '", name, "' is not described in ", table);
    return *found;
  }
  void describe(spec::Value& value) const {
    const json& meta = described("tensor_values", value.name);
    check_strided(meta);
    value.dtype = dtype(meta.at("dtype"));
    value.sizes = list<spec::Dim>(meta.at("sizes"), dim);
    value.strides = list<spec::Dim>(meta.at("strides"), dim);
    value.storage_offset = dim(meta.at("storage_offset"));
    value.requires_grad = meta.at("requires_grad").get<bool>();
    if (value.strides.size() != value.sizes.size())
      fail(ErrorCode::input, "tensor '", value.name, "' has ", value.sizes.size(), " sizes and ",
           value.strides.size(), " strides");
  }

  Graph& graph_;
  const json& description_;
  std::map<std::string, ValueId> ids_;
};

class GraphReader {
 public:
  explicit GraphReader(Graph& graph) : graph_(graph) {}

  // Of a node, or of the signature: reads values that the scope knows.
  Argument argument(const json& in, const Scope& scope, int depth) {
    const Union u(in);
    const json& v = *u.value;
    const auto id = [&scope](const json& named) { return scope.read(text(named.at("name"))); };
    if (u.tag == "as_none") return spec::None{};
    if (u.tag == "as_tensor") return spec::ValueRef{id(v)};
    if (u.tag == "as_tensors") return spec::ValueList{list<ValueId>(v, id)};
    if (u.tag == "as_nested_tensors")
      return spec::NestedValues{
          list<std::vector<ValueId>>(v, [&](const json& l) { return list<ValueId>(l, id); })};
    if (u.tag == "as_optional_tensor") return optional_tensor(v, scope);
    if (u.tag == "as_optional_tensors")
      return spec::ValueList{list<ValueId>(v, [&](const json& t) {
        const auto read = optional_tensor(t, scope);
        const auto* ref = std::get_if<spec::ValueRef>(&read);
        return ref == nullptr ? spec::kNoValue : ref->id;
      })};
    if (u.tag == "as_sym_int" || u.tag == "as_sym_float" || u.tag == "as_sym_bool") return symbolic(v, scope);
    if (u.tag == "as_sym_ints") return sym_ints(v, scope);
    if (u.tag == "as_sym_floats") return sym_scalars(v, scope, ValueKind::sym_float);
    if (u.tag == "as_sym_bools") return sym_scalars(v, scope, ValueKind::sym_bool);
    if (u.tag == "as_graph") return subgraph(v, depth + 1);
    if (u.tag == "as_string_to_argument") return dictionary(v, scope, depth + 1);
    if (u.tag == "as_custom_obj")
      fail(ErrorCode::unsupported, "it uses an object of class '", text(v.at("class_fqn")),
           "'; only tensors and numbers are supported");
    return constant(u);
  }

  // What a node makes.
  Argument made(const json& in, Scope& scope) {
    const Union u(in);
    const json& v = *u.value;
    const auto tensor = [&](const json& t) { return scope.make(text(t.at("name")), ValueKind::tensor); };
    if (u.tag == "as_none") return spec::None{};
    if (u.tag == "as_tensor") return spec::ValueRef{tensor(v)};
    if (u.tag == "as_tensors") return spec::ValueList{list<ValueId>(v, tensor)};
    if (u.tag == "as_optional_tensor") {
      const Union option(v);
      return option.tag == "as_none" ? Argument(spec::None{}) : spec::ValueRef{tensor(*option.value)};
    }
    constexpr std::array kSymbolic{std::pair{"as_sym_int", ValueKind::sym_int},
                                   std::pair{"as_sym_float", ValueKind::sym_float},
                                   std::pair{"as_sym_bool", ValueKind::sym_bool}};
    for (const auto& [tag, kind] : kSymbolic)
      if (u.tag == tag) {
        const Union number(v);  // a constant result names no value, and none reads it
        if (number.tag != "as_name") return spec::None{};
        return spec::ValueRef{scope.make(text(*number.value), kind)};
      }
    if (u.tag == "as_int" || u.tag == "as_float" || u.tag == "as_bool") return spec::None{};
    fail(ErrorCode::unsupported, "a result of kind '", u.tag, "' is not supported");
  }

  std::vector<spec::Node> nodes(const json& in, Scope& scope, int depth) {
    return list<spec::Node>(in, [&](const json& n) { return node(n, scope, depth); });
  }

 private:
  static Argument optional_tensor(const json& in, const Scope& scope) {
    const Union u(in);
    if (u.tag == "as_none") return spec::None{};
    if (u.tag != "as_tensor") fail(ErrorCode::input, "an optional tensor is needed, not ", shown(in));
    return spec::ValueRef{scope.read(text(u.value->at("name")))};
  }

  static Argument symbolic(const json& in, const Scope& scope) {
    const Union u(in);
    if (u.tag == "as_name") return spec::ValueRef{scope.read(text(*u.value))};
    return constant(u);
  }

  static Argument sym_ints(const json& in, const Scope& scope) {
    return spec::SymInts{list<spec::IntOrRef>(in, [&scope](const json& item) {
      const Union u(item);
      if (u.tag == "as_name") return spec::IntOrRef{0, scope.read(text(*u.value))};
      return spec::IntOrRef{integer(*u.value), spec::kNoValue};
    })};
  }

  static Argument sym_scalars(const json& in, const Scope& scope, ValueKind kind) {
    spec::SymScalars result;
    result.kind = kind;
    for (const auto& item : in) {
      const Union u(item);
      const bool named = u.tag == "as_name";
      result.ids.push_back(named ? scope.read(text(*u.value)) : spec::kNoValue);
      result.constants.push_back(named ? 0 : u.tag == "as_bool" ? u.value->get<bool>() : real(*u.value));
    }
    return result;
  }

  static Argument constant(const Union& u) {
    const json& v = *u.value;
    using Enum = spec::EnumArg::Kind;
    if (u.tag == "as_int") return integer(v);
    if (u.tag == "as_float") return real(v);
    if (u.tag == "as_bool") return v.get<bool>();
    if (u.tag == "as_string") return text(v);
    if (u.tag == "as_ints") return integers(v);
    if (u.tag == "as_floats") return list<double>(v, real);
    if (u.tag == "as_bools") return list<bool>(v, [](const json& b) { return b.get<bool>(); });
    if (u.tag == "as_strings") return list<std::string>(v, text);
    if (u.tag == "as_int_lists") return list<spec::Shape>(v, integers);
    if (u.tag == "as_float_lists")
      return list<std::vector<double>>(v, [](const json& l) { return list<double>(l, real); });
    if (u.tag == "as_scalar_type") return spec::EnumArg{Enum::dtype, integer(v)};
    if (u.tag == "as_layout") return spec::EnumArg{Enum::layout, integer(v)};
    if (u.tag == "as_memory_format") return spec::EnumArg{Enum::memory_format, integer(v)};
    if (u.tag == "as_device") return device(v);
    if (u.tag == "as_complex") return spec::ComplexArg{real(v.at("real")), real(v.at("imag"))};
    if (u.tag == "as_operator") return spec::OperatorArg{text(v)};
    fail(ErrorCode::unsupported, "an argument of kind '", u.tag, "' is not supported");
  }

  Argument dictionary(const json& in, const Scope& scope, int depth) {
    if (depth > kMaxNesting) fail(ErrorCode::input, "arguments nested too deeply");
    spec::DictArg dict;
    for (const auto& [key, value] : in.items()) dict.entries.push_back({key, argument(value, scope, depth)});
    return dict;
  }

  Argument subgraph(const json& in, int depth) {
    if (depth > kMaxNesting) fail(ErrorCode::input, "subgraphs nested too deeply");
    const json& description = in.at("graph");
    Scope scope(graph_, description);
    spec::Subgraph body;
    for (const auto& input : description.at("inputs")) {
      const Argument made_input = made(input, scope);
      const auto* ref = std::get_if<spec::ValueRef>(&made_input);
      body.inputs.push_back(ref == nullptr ? spec::kNoValue : ref->id);
    }
    body.nodes = nodes(description.at("nodes"), scope, depth);
    for (const auto& output : description.at("outputs"))
      body.outputs.push_back(argument(output, scope, depth));
    body.single_tensor = description.at("is_single_tensor_return").get<bool>();
    graph_.subgraphs.push_back(std::move(body));
    return spec::GraphArg{static_cast<int32_t>(graph_.subgraphs.size()) - 1};
  }

  spec::Node node(const json& in, Scope& scope, int depth) {
    spec::Node node;
    node.target = text(in.at("target"));
    if (const auto name = in.find("name"); name != in.end() && name->is_string()) node.name = text(*name);
    try {
      if (const auto metadata = in.find("metadata"); metadata != in.end()) {
        node.module_path = innermost_module(metadata->value("nn_module_stack", ""));
        node.source_line = source_line(metadata->value("stack_trace", ""));
      }
      for (const auto& input : in.at("inputs")) {
        const auto kind = input.find("kind");
        const bool keyword = kind != input.end() && *kind == 2;  // schema.ArgumentKind.KEYWORD
        node.inputs.push_back({text(input.at("name")), argument(input.at("arg"), scope, depth), keyword});
      }
      node.outputs = list<Argument>(in.at("outputs"), [&](const json& o) { return made(o, scope); });
    } catch (const Error& e) {
      fail(e.code(), "node '", node.name, "' (", node.target, "): ", e.what());
    }
    return node;
  }

  Graph& graph_;
};

struct NamedInput {
  spec::InputKind kind;
  const json* argument;  // null for a literal
  std::string name;
  bool persistent = true;
};

NamedInput input_spec(const json& in) {
  const Union u(in);
  const json& v = *u.value;
  using spec::InputKind;
  if (u.tag == "user_input") return {InputKind::user, &v.at("arg"), ""};
  if (u.tag == "parameter") return {InputKind::parameter, &v.at("arg"), text(v.at("parameter_name"))};
  if (u.tag == "buffer")
    return {InputKind::buffer, &v.at("arg"), text(v.at("buffer_name")), v.at("persistent").get<bool>()};
  if (u.tag == "tensor_constant")
    return {InputKind::constant, &v.at("arg"), text(v.at("tensor_constant_name"))};
  if (u.tag == "constant_input") return {InputKind::literal, nullptr, text(v.at("name"))};
  if (u.tag == "custom_obj")
    fail(ErrorCode::unsupported, "the model holds an object '", text(v.at("custom_obj_name")),
         "' that is not a tensor");
  fail(ErrorCode::unsupported, "an input of kind '", u.tag, "' is not supported");
}

// The graph's own list and the signature's name the same inputs in the same order.
void read_inputs(const json& listed, const json& specs, Graph& graph, GraphReader& reader, Scope& scope) {
  if (listed.size() != specs.size())
    fail(ErrorCode::input, "the graph has ", listed.size(), " inputs, its signature ", specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    const NamedInput spec = input_spec(specs.at(i));
    spec::GraphInput input{spec.kind, spec::kNoValue, spec.name, spec.persistent};
    const Argument value = reader.made(listed.at(i), scope);
    if (const auto* ref = std::get_if<spec::ValueRef>(&value)) {
      const std::string& name = graph.values.at(static_cast<size_t>(ref->id)).name;
      input.value = ref->id;
      if (spec.kind == spec::InputKind::user) input.name = name;
      // Tensors of parameters stand without a tag, user inputs with one.
      const json* named = spec.argument;
      if (named && spec.kind == spec::InputKind::user) named = Union(*named).value;
      if (named && named->value("name", named->value("as_name", "")) != name)
        fail(ErrorCode::input, "input ", i, " is '", name, "' in the graph and ", shown(*named),
             " in the signature");
    }
    if ((input.value == spec::kNoValue) != (spec.kind == spec::InputKind::literal))
      fail(ErrorCode::input, "input ", i, " is a value in the graph or in the signature, not in both");
    graph.inputs.push_back(std::move(input));
  }
}

spec::GraphOutput output_spec(const json& in, const Scope& scope, GraphReader& reader) {
  const Union u(in);
  const json& v = *u.value;
  using spec::OutputKind;
  if (u.tag == "user_output") return {OutputKind::user, reader.argument(v.at("arg"), scope, 0), ""};
  struct Kind {
    const char *tag, *name;
    OutputKind kind;
  };
  constexpr std::array kKinds{
      Kind{"loss_output", nullptr, OutputKind::loss},
      Kind{"buffer_mutation", "buffer_name", OutputKind::buffer_mutation},
      Kind{"parameter_mutation", "parameter_name", OutputKind::parameter_mutation},
      Kind{"user_input_mutation", "user_input_name", OutputKind::input_mutation},
      Kind{"gradient_to_parameter", "parameter_name", OutputKind::parameter_gradient},
      Kind{"gradient_to_user_input", "user_input_name", OutputKind::input_gradient},
  };
  for (const auto& kind : kKinds)
    if (u.tag == kind.tag)
      return {kind.kind, spec::ValueRef{scope.read(text(v.at("arg").at("name")))},
              kind.name == nullptr ? "" : text(v.at(kind.name))};
  fail(ErrorCode::unsupported, "an output of kind '", u.tag, "' is not supported");
}

void check_schema(const json& version) {
  const int64_t major = integer(version.at("major")), minor = integer(version.at("minor"));
  if (major != kSchemaMajor)
    fail(ErrorCode::unsupported, "written with schema version ", major, ".", minor,
         "; this build reads version ", kSchemaMajor, ": export again with torch 2.11 or newer");
  if (minor > kSchemaMinor)
    log::warning(cat("the model was written with schema version ", major, ".", minor, ", newer than ",
                     kSchemaMajor, ".", kSchemaMinor, " which this build knows; new fields are ignored"));
}

Graph read_program(const json& in) {
  check_schema(in.at("schema_version"));
  Graph graph;
  graph.torch_version = in.value("torch_version", "");
  for (const auto& verifier : in.value("verifiers", json::array())) graph.training |= verifier == "TRAINING";
  for (const auto& [symbol, range] : in.at("range_constraints").items()) {
    const auto bound = [](const json& b) { return b.is_null() ? std::nullopt : std::optional(integer(b)); };
    graph.ranges[symbol] = {bound(range.at("min_val")), bound(range.at("max_val"))};
  }
  const json& description = in.at("graph_module").at("graph");
  const json& signature = in.at("graph_module").at("signature");
  GraphReader reader(graph);
  Scope scope(graph, description);
  read_inputs(description.at("inputs"), signature.at("input_specs"), graph, reader, scope);
  graph.nodes = reader.nodes(description.at("nodes"), scope, 0);
  const json &outputs = description.at("outputs"), &specs = signature.at("output_specs");
  if (outputs.size() != specs.size())
    fail(ErrorCode::input, "the graph has ", outputs.size(), " outputs, its signature ", specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    graph.outputs.push_back(output_spec(specs.at(i), scope, reader));
    if (reader.argument(outputs.at(i), scope, 0) != graph.outputs.back().value)
      fail(ErrorCode::input, "output ", i, " differs between the graph and its signature");
  }
  return graph;
}

spec::Weight read_weight(const json& meta, std::string record) {
  check_strided(meta);
  const auto fixed = [](const json& d) {
    const auto read = dim(d);
    if (!read.symbol.empty()) fail(ErrorCode::input, "a weight has a symbolic size");
    return read.hint;
  };
  return {std::move(record),
          dtype(meta.at("dtype")),
          list<int64_t>(meta.at("sizes"), fixed),
          list<int64_t>(meta.at("strides"), fixed),
          fixed(meta.at("storage_offset")),
          meta.at("requires_grad").get<bool>()};
}

template <typename Body>
auto as_input_error(Body body) {
  try {
    return body();
  } catch (const json::exception& e) {
    fail(ErrorCode::input, "not as torch.export writes it: ", json_problem(e));
  }
}

}  // namespace

spec::Dtype dtype_from_schema(int64_t number) {
  using spec::Dtype;
  switch (number) {
    case 1:
      return Dtype::u8;
    case 2:
      return Dtype::i8;
    case 3:
      return Dtype::i16;
    case 4:
      return Dtype::i32;
    case 5:
      return Dtype::i64;
    case 6:
      return Dtype::f16;
    case 7:
      return Dtype::f32;
    case 8:
      return Dtype::f64;
    case 10:
      return Dtype::c64;
    case 11:
      return Dtype::c128;
    case 12:
      return Dtype::boolean;
    case 13:
      return Dtype::bf16;
    case 28:
      return Dtype::u16;
    case 29:
      return Dtype::f8_e4m3;
    case 30:
      return Dtype::f8_e5m2;
    case 34:
      return Dtype::u32;
    case 35:
      return Dtype::u64;
    default:
      fail(ErrorCode::unsupported, "element type number ", number, " of torch.export is not supported");
  }
}

Graph parse_pt2_graph(std::string_view text) {
  return as_input_error([&] {
    spec::check_json_depth(text);
    return read_program(json::parse(text));
  });
}

void parse_pt2_weights(std::string_view json_text, const std::string& folder,
                       std::map<std::string, spec::Weight>& weights) {
  as_input_error([&] {
    spec::check_json_depth(json_text);
    const json parsed = json::parse(json_text);
    for (const auto& [name, payload] : parsed.at("config").items()) {
      const bool tensor = payload.contains("tensor_meta") && !payload.at("tensor_meta").is_null();
      if (payload.at("use_pickle").get<bool>()) {
        if (!tensor) continue;  // the signature says whether the graph needs this object
        fail(ErrorCode::input, "weight '", name,
             "' is pickled (a tensor subclass); convert it to a plain tensor and export again");
      }
      if (!tensor) fail(ErrorCode::input, "weight '", name, "' has no tensor_meta");
      try {
        const auto weight = read_weight(payload.at("tensor_meta"), folder + text(payload.at("path_name")));
        if (!weights.emplace(name, weight).second) fail(ErrorCode::input, "occurs twice");
      } catch (const Error& e) {
        fail(e.code(), "weight '", name, "': ", e.what());
      }
    }
  });
}

}  // namespace trireme::graph

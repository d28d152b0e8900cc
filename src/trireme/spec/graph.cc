#include "trireme/spec/graph.h"

#include "trireme/base/error.h"
#include "trireme/base/files.h"

namespace trireme::spec {
namespace {

template <typename... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <typename... F>
Overloaded(F...) -> Overloaded<F...>;

template <typename Items, typename Print>
std::string joined(const Items& items, Print print) {
  std::string text;
  for (const auto& item : items) text += (text.empty() ? "" : ", ") + print(item);
  return text;
}

// Prints arguments, with value names in place of their numbers.
class Printer {
 public:
  explicit Printer(const Graph& graph) : graph_(graph) {}

  std::string name(ValueId id) const {
    return id == kNoValue ? "None" : graph_.values.at(static_cast<size_t>(id)).name;
  }

  std::string argument(const Argument& argument) const {
    const auto id_name = [this](ValueId id) { return name(id); };
    return std::visit(
        Overloaded{
            [](None) { return std::string("None"); },
            [&](const ValueRef& a) { return name(a.id); },
            [&](const ValueList& a) { return "[" + joined(a.ids, id_name) + "]"; },
            [&](const NestedValues& a) {
              return "[" + joined(a.lists, [&](const auto& l) { return "[" + joined(l, id_name) + "]"; }) +
                     "]";
            },
            [&](const SymInts& a) {
              return "[" +
                     joined(
                         a.items,
                         [&](const IntOrRef& i) { return i.id == kNoValue ? cat(i.constant) : name(i.id); }) +
                     "]";
            },
            [&](const SymScalars& a) {
              std::vector<std::string> items;
              for (size_t i = 0; i < a.ids.size(); ++i)
                items.push_back(a.ids[i] == kNoValue ? cat(a.constants[i]) : name(a.ids[i]));
              return "[" + joined(items, [](const auto& t) { return t; }) + "]";
            },
            [](bool a) { return std::string(a ? "true" : "false"); },
            [](const std::string& a) { return "'" + a + "'"; },
            [](const ComplexArg& a) { return cat(a.real, "+", a.imag, "j"); },
            [](const EnumArg& a) {
              constexpr const char* kNames[] = {"dtype", "layout", "memory_format"};
              return cat(kNames[static_cast<int>(a.kind)], " ", a.value);
            },
            [](const DeviceArg& a) { return a.index < 0 ? a.type : cat(a.type, ":", a.index); },
            [](const OperatorArg& a) { return a.target; },
            [](const GraphArg& a) { return cat("subgraph ", a.subgraph); },
            [this](const DictArg& a) {
              return "{" +
                     joined(a.entries,
                            [this](const DictEntry& e) { return e.name + ": " + this->argument(e.value); }) +
                     "}";
            },
            [](const auto& a) { return plain(a); },
        },
        argument);
  }

  std::string type(ValueId id) const {
    if (id == kNoValue) return "";
    const auto& value = graph_.values.at(static_cast<size_t>(id));
    if (value.kind != ValueKind::tensor) return "";
    return ": " + std::string(spec::name(value.dtype)) + "[" +
           joined(value.sizes, [](const Dim& d) { return d.symbol.empty() ? cat(d.hint) : d.symbol; }) + "]";
  }

  std::string node(const Node& node) const {
    std::string outputs = joined(node.outputs, [&](const Argument& a) {
      const auto* ref = std::get_if<ValueRef>(&a);
      return argument(a) + (ref ? type(ref->id) : "");
    });
    std::string inputs = joined(node.inputs, [&](const NamedArgument& a) {
      return (a.keyword ? a.name + "=" : "") + argument(a.value);
    });
    return (outputs.empty() ? "" : outputs + " = ") + node.target + "(" + inputs + ")";
  }

 private:
  static std::string plain(int64_t a) { return cat(a); }
  static std::string plain(double a) { return cat(a); }
  template <typename T>
  static std::string plain(const std::vector<T>& a) {
    return "[" +
           joined(a,
                  [](const T& item) {
                    if constexpr (std::is_same_v<T, std::string>)
                      return "'" + item + "'";
                    else if constexpr (std::is_same_v<T, bool>)
                      return std::string(item ? "true" : "false");
                    else
                      return plain(item);
                  }) +
           "]";
  }
  const Graph& graph_;
};

}  // namespace

void for_each_value(const Argument& argument, const std::function<void(ValueId)>& read) {
  const auto visit = [&read](ValueId id) {
    if (id != kNoValue) read(id);
  };
  if (const auto* ref = std::get_if<ValueRef>(&argument)) visit(ref->id);
  if (const auto* list = std::get_if<ValueList>(&argument))
    for (const ValueId id : list->ids) visit(id);
  if (const auto* nested = std::get_if<NestedValues>(&argument))
    for (const auto& list : nested->lists)
      for (const ValueId id : list) visit(id);
  if (const auto* ints = std::get_if<SymInts>(&argument))
    for (const auto& item : ints->items) visit(item.id);
  if (const auto* scalars = std::get_if<SymScalars>(&argument))
    for (const ValueId id : scalars->ids) visit(id);
  if (const auto* dict = std::get_if<DictArg>(&argument))
    for (const auto& entry : dict->entries) for_each_value(entry.value, read);
}

std::string to_text(const Graph& graph) {
  const Printer print(graph);
  std::string text;
  constexpr const char* kInputs[] = {"user", "parameter", "buffer", "constant", "literal"};
  for (const auto& input : graph.inputs)
    text +=
        cat(kInputs[static_cast<int>(input.kind)], " ", input.name,
            input.value == kNoValue ? "" : " -> " + print.name(input.value) + print.type(input.value), "\n");
  for (const auto& node : graph.nodes) text += print.node(node) + "\n";
  for (const auto& output : graph.outputs)
    text +=
        cat("return ", print.argument(output.value), output.name.empty() ? "" : " -> " + output.name, "\n");
  for (size_t i = 0; i < graph.subgraphs.size(); ++i) {
    const auto& body = graph.subgraphs[i];
    text += cat("subgraph ", i, "(", joined(body.inputs, [&](ValueId id) { return print.name(id); }), ")\n");
    for (const auto& node : body.nodes) text += "  " + print.node(node) + "\n";
    text +=
        cat("  return ", joined(body.outputs, [&](const Argument& a) { return print.argument(a); }), "\n");
  }
  return text;
}

uint64_t fingerprint(const Graph& graph) {
  // Where a line of Python stood does not change results; two ranks may have exported from different folders.
  Graph bare = graph;
  const auto strip = [](std::vector<Node>& nodes) {
    for (auto& node : nodes) node.source_line.clear();
  };
  strip(bare.nodes);
  for (auto& body : bare.subgraphs) strip(body.nodes);
  return trireme::content_hash(to_json(bare));
}

}  // namespace trireme::spec

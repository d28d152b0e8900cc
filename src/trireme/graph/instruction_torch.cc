#include "trireme/graph/instruction_torch.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/List.h>

#include <array>

#include "trireme/base/error.h"
#include "trireme/graph/pt2_graph.h"
#include "trireme/tensor/adaptor_torch.h"

namespace trireme::graph {
namespace {

using c10::IValue;
using c10::TypeKind;
using spec::Argument;
using spec::ValueId;

template <typename... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <typename... F>
Overloaded(F...) -> Overloaded<F...>;

// What the operator's schema wants at one place.
struct Formal {
  explicit Formal(const c10::Argument& argument) : fixed_size(argument.N().value_or(1)) {
    auto type = argument.type();
    if (auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
    kind = type->kind();
    if (auto list = type->cast<c10::ListType>()) {
      auto element = list->getElementType();
      if (auto optional = element->cast<c10::OptionalType>()) {
        optional_elements = true;
        element = optional->getElementType();
      }
      element_kind = element->kind();
    }
  }
  bool is_list() const { return kind == TypeKind::ListType; }
  TypeKind kind;
  TypeKind element_kind = TypeKind::AnyType;
  bool optional_elements = false;
  int64_t fixed_size;  // int[2] takes one number for both
};

[[noreturn]] void does_not_fit(const char* what) {
  fail(ErrorCode::input, what, " where the operator takes something else");
}

template <typename T, typename From>
c10::List<T> list_of(const std::vector<From>& items) {
  c10::List<T> list;
  list.reserve(items.size());
  for (const From item : items) list.push_back(static_cast<T>(item));
  return list;
}

// Python lets a number stand for a tensor; its type then yields to that of real tensors.
IValue scalar_tensor(const at::Scalar& scalar) {
  return at::native::wrapped_scalar_tensor(scalar);
}

template <typename Number>
IValue number(Number value, const Formal& formal) {
  switch (formal.kind) {
    case TypeKind::TensorType:
      return scalar_tensor(value);
    case TypeKind::FloatType:
      return static_cast<double>(value);
    case TypeKind::BoolType:
      return static_cast<bool>(value);
    case TypeKind::IntType:
      if constexpr (std::is_same_v<Number, double>) does_not_fit("a real number");
      return static_cast<int64_t>(value);
    case TypeKind::NumberType:
    case TypeKind::AnyType:
      return value;
    case TypeKind::ListType: {
      const std::vector<Number> repeated(static_cast<size_t>(formal.fixed_size), value);
      if (formal.element_kind == TypeKind::FloatType) return list_of<double>(repeated);
      if (formal.element_kind == TypeKind::BoolType) return list_of<bool>(repeated);
      if (formal.element_kind == TypeKind::IntType && !std::is_same_v<Number, double>)
        return list_of<int64_t>(repeated);
      does_not_fit("a number");
    }
    default:
      does_not_fit("a number");
  }
}

template <typename Number>
IValue numbers(const std::vector<Number>& values, const Formal& formal) {
  switch (formal.element_kind) {
    case TypeKind::IntType:
      if constexpr (std::is_same_v<Number, double>) does_not_fit("a list of real numbers");
      return list_of<int64_t>(values);
    case TypeKind::FloatType:
      return list_of<double>(values);
    case TypeKind::BoolType:
      return list_of<bool>(values);
    case TypeKind::NumberType: {
      c10::impl::GenericList list(c10::NumberType::get());
      for (const Number value : values) list.push_back(value);
      return list;
    }
    case TypeKind::TensorType:
      if (values.empty()) return c10::List<at::Tensor>();
      [[fallthrough]];
    default:
      does_not_fit("a list of numbers");
  }
}

IValue enumerated(const spec::EnumArg& a) {
  using Kind = spec::EnumArg::Kind;
  constexpr std::array kLayouts{c10::Layout::NumOptions, c10::Layout::Sparse,    c10::Layout::SparseCsr,
                                c10::Layout::SparseCsc,  c10::Layout::SparseBsr, c10::Layout::SparseBsc,
                                c10::Layout::Mkldnn,     c10::Layout::Strided};
  constexpr std::array kFormats{c10::MemoryFormat::NumOptions, c10::MemoryFormat::Contiguous,
                                c10::MemoryFormat::ChannelsLast, c10::MemoryFormat::ChannelsLast3d,
                                c10::MemoryFormat::Preserve};
  if (a.kind == Kind::dtype) return static_cast<int64_t>(tensor::to_torch(dtype_from_schema(a.value)));
  const auto index = static_cast<size_t>(a.value);
  if (a.value < 1 || index >= (a.kind == Kind::layout ? kLayouts.size() : kFormats.size()))
    fail(ErrorCode::input, "unknown number ", a.value, " of a layout or memory format");
  return a.kind == Kind::layout ? static_cast<int64_t>(kLayouts[index])
                                : static_cast<int64_t>(kFormats[index]);
}

// A model exported on one device runs on another: whatever place was recorded, the executor's stands for it.
IValue device(const spec::DeviceArg& a, const Target& target) {
  return a.type == "meta" ? c10::Device(c10::kMeta) : target.device;
}

// Fills one place of the stack: a constant now, or a slot for the run.
class Filler {
 public:
  Filler(Instruction& instruction, const Target& target) : instruction_(instruction), target_(target) {}

  void fill(size_t position, const Argument& argument, const Formal& formal) {
    IValue& place = instruction_.constants.at(position);
    const auto slot = [&](Slot::Kind kind, std::vector<ValueId> ids) -> Slot& {
      return instruction_.slots.emplace_back(Slot{position, kind, std::move(ids), {}, {}, {}});
    };
    std::visit(
        Overloaded{
            [&](spec::None) { place = IValue(); },
            [&](const spec::ValueRef& a) { slot(Slot::Kind::value, {a.id}); },
            [&](const spec::ValueList& a) {
              slot(formal.optional_elements ? Slot::Kind::optional_tensors : Slot::Kind::tensors, a.ids);
            },
            [&](const spec::NestedValues& a) { slot(Slot::Kind::tensor_lists, {}).lists = a.lists; },
            [&](const spec::SymInts& a) { sym_ints(a, slot(Slot::Kind::ints, {})); },
            [&](const spec::SymScalars& a) {
              slot(a.kind == spec::ValueKind::sym_bool ? Slot::Kind::bools : Slot::Kind::reals, a.ids).reals =
                  a.constants;
            },
            [&](int64_t a) { place = number(a, formal); },
            [&](double a) { place = number(a, formal); },
            [&](bool a) { place = number(a, formal); },
            [&](const std::string& a) { place = a; },
            [&](const spec::ComplexArg& a) {
              const c10::complex<double> value(a.real, a.imag);
              place = formal.kind == TypeKind::TensorType ? scalar_tensor(value) : IValue(value);
            },
            [&](const std::vector<int64_t>& a) { place = numbers(a, formal); },
            [&](const std::vector<double>& a) { place = numbers(a, formal); },
            [&](const std::vector<bool>& a) { place = numbers(a, formal); },
            [&](const std::vector<std::string>& a) { place = a; },
            [&](const std::vector<std::vector<int64_t>>& a) { place = nested<int64_t>(a); },
            [&](const std::vector<std::vector<double>>& a) { place = nested<double>(a); },
            [&](const spec::EnumArg& a) { place = enumerated(a); },
            [&](const spec::DeviceArg& a) { place = device(a, target_); },
            [&](const spec::OperatorArg&) { does_not_fit("an operator"); },
            [&](const spec::GraphArg&) { does_not_fit("a subgraph"); },
            [&](const spec::DictArg&) { does_not_fit("a dictionary"); },
        },
        argument);
  }

  // A number computed at run time may have to become a tensor or a real number.
  void adapt_last_value(const spec::Graph& graph, const Formal& formal) {
    auto& slot = instruction_.slots.back();
    const bool number = graph.values.at(static_cast<size_t>(slot.ids.at(0))).kind != spec::ValueKind::tensor;
    if (!number) return;
    if (formal.kind == TypeKind::TensorType) slot.kind = Slot::Kind::scalar_tensor;
    if (formal.kind == TypeKind::FloatType) slot.kind = Slot::Kind::real;
    if (formal.kind == TypeKind::ListType) {
      const bool real = formal.element_kind == TypeKind::FloatType;
      slot.kind = real ? Slot::Kind::reals : Slot::Kind::ints;
      slot.ids.resize(static_cast<size_t>(formal.fixed_size), slot.ids[0]);
      slot.ints.resize(slot.ids.size());
      slot.reals.resize(slot.ids.size());
    }
  }

 private:
  static void sym_ints(const spec::SymInts& a, Slot& slot) {
    for (const auto& item : a.items) {
      slot.ids.push_back(item.id);
      slot.ints.push_back(item.constant);
    }
  }
  template <typename T>
  static IValue nested(const std::vector<std::vector<T>>& lists) {
    c10::List<c10::List<T>> result;
    for (const auto& list : lists) result.push_back(list_of<T>(list));
    return result;
  }

  Instruction& instruction_;
  const Target& target_;
};

const spec::NamedArgument* find(const spec::Node& node, const std::string& name) {
  for (const auto& input : node.inputs)
    if (input.name == name) return &input;
  return nullptr;
}

bool is_given(const spec::Node& node, const std::string& name) {
  const auto* argument = find(node, name);
  return argument != nullptr && !std::holds_alternative<spec::None>(argument->value);
}

// The arguments by which ATen's operators tell training from evaluation.
void set_evaluate(const spec::Node& node, const c10::Argument& formal, IValue& place) {
  const auto& name = formal.name();
  // Without running statistics, batch and instance norm use those of the batch in evaluation too.
  const bool batch_only = node.target.find("_norm") != std::string::npos && !is_given(node, "running_mean");
  const bool switches = name == "train" || name == "training" || name == "use_input_stats";
  if (switches && place.isBool() && !batch_only) place = false;
  if (name == "dropout_p" && place.isDouble()) place = 0.0;
}

void check_kernel(const c10::OperatorHandle& op, c10::Device device) {
  const auto key = device.is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU;
  if (!op.hasComputedKernelForDispatchKey(key))
    fail(ErrorCode::unsupported, "the operator has no kernel for ", device.str());
}

void fill_call(const spec::Graph& graph, const spec::Node& node, const Target& target,
               Instruction& instruction) {
  check_kernel(*instruction.resolved.op, target.device);
  const auto& formals = instruction.resolved.op->schema().arguments();
  size_t used = 0;
  Filler filler(instruction, target);
  for (size_t i = 0; i < formals.size(); ++i) {
    instruction.constants.emplace_back();
    const auto* given = find(node, formals[i].name());
    if (given != nullptr) {
      ++used;
      const Formal formal(formals[i]);
      filler.fill(i, given->value, formal);
      if (std::holds_alternative<spec::ValueRef>(given->value)) filler.adapt_last_value(graph, formal);
    } else if (formals[i].default_value()) {
      instruction.constants[i] = *formals[i].default_value();
    } else if (formals[i].type()->kind() != TypeKind::OptionalType) {
      fail(ErrorCode::input, "argument '", formals[i].name(), "' is missing");
    }
    if (target.evaluate) set_evaluate(node, formals[i], instruction.constants[i]);
  }
  if (used != node.inputs.size())
    fail(ErrorCode::input, "the file gives ", node.inputs.size(), " arguments, of which the operator knows ",
         used);
  const auto& returns = instruction.resolved.op->schema().returns();
  if (instruction.results.size() > returns.size())
    fail(ErrorCode::input, "the file names ", instruction.results.size(), " results, the operator has ",
         returns.size());
}

void fill_symbolic(const spec::Node& node, const Target& target, Instruction& instruction) {
  if (node.inputs.size() != instruction.resolved.symbolic->inputs || instruction.results.size() != 1)
    fail(ErrorCode::input, "it takes ", instruction.resolved.symbolic->inputs, " numbers and gives one");
  const c10::Argument any("number", c10::AnyType::get());
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    instruction.constants.emplace_back();
    Filler(instruction, target).fill(i, node.inputs[i].value, Formal(any));
    const auto& place = instruction.constants[i];
    const bool later = !instruction.slots.empty() && instruction.slots.back().position == i;
    if (!later && !place.isInt() && !place.isDouble() && !place.isBool()) does_not_fit("not a number");
  }
}

// The calls of torch.vmap: plain arguments, in order.
void fill_vmap(const spec::Node& node, const Target& target, Instruction& instruction) {
  const c10::Argument any("argument", c10::AnyType::get());
  for (const auto& input : node.inputs) {
    instruction.constants.emplace_back();
    Filler(instruction, target).fill(instruction.constants.size() - 1, input.value, Formal(any));
  }
  const Role role = instruction.resolved.role;
  const size_t wanted = role == Role::vmap_enter    ? 2
                        : role == Role::vmap_add    ? 3
                        : role == Role::vmap_remove ? 4
                                                    : 0;
  if (instruction.constants.size() != wanted)
    fail(ErrorCode::input, "its arguments are not those that torch.export writes");
}

class Builder {
 public:
  Builder(const spec::Graph& graph, const ResolvedGraph& resolved, const Target& target)
      : graph_(graph), resolved_(resolved), target_(target) {}

  std::vector<Instruction> build(const std::vector<spec::Node>& nodes,
                                 const std::vector<Resolved>& resolved) const {
    std::vector<Instruction> instructions;
    instructions.reserve(nodes.size());
    for (size_t i = 0; i < nodes.size(); ++i) {
      try {
        instructions.push_back(build(nodes[i], resolved[i]));
      } catch (const Error& e) {
        fail(e.code(), describe(nodes[i]), ": ", e.what());
      }
    }
    return instructions;
  }

 private:
  Instruction build(const spec::Node& node, const Resolved& resolved) const {
    Instruction instruction;
    instruction.node = &node;
    instruction.resolved = resolved;
    for (const auto& output : node.outputs) {
      Result result;
      result.is_list = std::holds_alternative<spec::ValueList>(output);
      spec::for_each_value(output, [&](ValueId id) { result.ids.push_back(id); });
      instruction.results.push_back(std::move(result));
    }
    if (resolved.role == Role::call)
      fill_call(graph_, node, target_, instruction);
    else if (resolved.role == Role::symbolic)
      fill_symbolic(node, target_, instruction);
    else if (resolved.role >= Role::vmap_enter)
      fill_vmap(node, target_, instruction);
    else
      fill_wrapper(node, instruction);
    return instruction;
  }

  // Constants stand before the first body, operands after the last one.
  void fill_wrapper(const spec::Node& node, Instruction& instruction) const {
    const c10::Argument any("operand", c10::AnyType::get());
    for (const auto& input : node.inputs) {
      if (const auto* body = std::get_if<spec::GraphArg>(&input.value)) {
        instruction.bodies.push_back(build_body(static_cast<size_t>(body->subgraph)));
      } else if (!instruction.bodies.empty()) {
        // Keywords and names of regions are hints to compilers.
        if (!input.keyword && !std::holds_alternative<std::string>(input.value))
          add_operands(input.value, instruction.operands);
      } else {
        instruction.constants.emplace_back();
        Filler(instruction, target_).fill(instruction.constants.size() - 1, input.value, Formal(any));
      }
    }
    const Role role = instruction.resolved.role;
    check_wrapper(instruction, role == Role::cond || role == Role::while_loop ? 2 : 1);
    if (role == Role::autocast)
      instruction.constants[0] = c10::DeviceTypeName(target_.device.type(), /*lower_case=*/true);
  }

  static void check_wrapper(const Instruction& instruction, size_t bodies) {
    const auto& constants = instruction.constants;
    const auto wrong = [] { fail(ErrorCode::input, "its arguments are not those that torch.export writes"); };
    if (instruction.bodies.size() != bodies) wrong();
    for (const auto& body : instruction.bodies)
      if (body->inputs.size() != instruction.operands.size()) wrong();
    switch (instruction.resolved.role) {
      case Role::grad_mode:
        if (constants.size() != 1 || !constants[0].isBool()) wrong();
        break;
      case Role::autocast:
        if (constants.size() != 4 || !constants[0].isString() || !constants[2].isBool()) wrong();
        if (!(constants[1].isNone() || constants[1].isInt()) ||
            !(constants[3].isNone() || constants[3].isBool()))
          wrong();
        break;
      case Role::cond:
        if (constants.size() != 1) wrong();
        break;
      default:
        break;
    }
  }

  static void add_operands(const Argument& argument, std::vector<ValueId>& operands) {
    if (const auto* list = std::get_if<spec::ValueList>(&argument))
      operands.insert(operands.end(), list->ids.begin(), list->ids.end());
    else if (const auto* ints = std::get_if<spec::SymInts>(&argument))
      for (const auto& item : ints->items) operands.push_back(item.id);
    else if (const auto* ref = std::get_if<spec::ValueRef>(&argument))
      operands.push_back(ref->id);
    else
      operands.push_back(spec::kNoValue);
  }

  std::unique_ptr<Body> build_body(size_t index) const {
    const auto& subgraph = graph_.subgraphs.at(index);
    auto body = std::make_unique<Body>();
    body->inputs = subgraph.inputs;
    body->instructions = build(subgraph.nodes, resolved_.bodies.at(index));
    std::vector<bool> kept(graph_.values.size());
    const c10::Argument any("output", c10::AnyType::get());
    for (const auto& output : subgraph.outputs) {
      Instruction constant;
      constant.constants.emplace_back();
      Filler(constant, target_).fill(0, output, Formal(any));
      const auto* ref = std::get_if<spec::ValueRef>(&output);
      if (ref != nullptr) kept[static_cast<size_t>(ref->id)] = true;
      if (ref == nullptr && !constant.slots.empty())
        fail(ErrorCode::unsupported, "a subgraph that returns a list");
      body->outputs.push_back(ref == nullptr ? spec::kNoValue : ref->id);
      body->constant_outputs.push_back(constant.constants[0]);
    }
    body->dead = dead_after(subgraph.nodes, 0, subgraph.nodes.size(), kept);
    return body;
  }

  const spec::Graph& graph_;
  const ResolvedGraph& resolved_;
  const Target& target_;
};

}  // namespace

std::vector<Instruction> make_instructions(const spec::Graph& graph, const ResolvedGraph& resolved,
                                           const Target& target) {
  return Builder(graph, resolved, target).build(graph.nodes, resolved.nodes);
}

std::vector<std::vector<ValueId>> dead_after(const std::vector<spec::Node>& nodes, size_t begin, size_t end,
                                             const std::vector<bool>& kept) {
  std::vector<std::vector<ValueId>> dead(end - begin);
  std::vector<bool> seen = kept;
  for (size_t i = end; i-- > begin;) {
    const auto last_mention = [&](ValueId id) {
      if (seen[static_cast<size_t>(id)]) return;
      seen[static_cast<size_t>(id)] = true;
      dead[i - begin].push_back(id);
    };
    for (const auto& output : nodes[i].outputs) spec::for_each_value(output, last_mention);
    for (const auto& input : nodes[i].inputs) spec::for_each_value(input.value, last_mention);
  }
  return dead;
}

}  // namespace trireme::graph

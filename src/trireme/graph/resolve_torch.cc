// Finding each operator once.
#include <array>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/graph/instruction_torch.h"

namespace trireme::graph {
namespace {

struct Wrapper {
  std::string_view name;
  Role role;
};
constexpr std::string_view kHigherOrder = "torch.ops.higher_order.", kOps = "torch.ops.";
constexpr std::string_view kVmap = "torch._functorch.predispatch.";
constexpr std::array kWrappers{
    Wrapper{"wrap_with_set_grad_enabled", Role::grad_mode},
    Wrapper{"wrap_with_autocast", Role::autocast},
    Wrapper{"cond", Role::cond},
    Wrapper{"while_loop", Role::while_loop},
    // Recomputing in the backward pass is the trainer's decision; the values are the same.
    Wrapper{"tag_activation_checkpoint", Role::inlined},
    Wrapper{"wrap_activation_checkpoint", Role::inlined},
    Wrapper{"wrap", Role::inlined},
    Wrapper{"invoke_subgraph", Role::inlined},
};

constexpr std::array kVmapCalls{
    Wrapper{"_vmap_increment_nesting", Role::vmap_enter},
    Wrapper{"_add_batch_dim", Role::vmap_add},
    Wrapper{"_remove_batch_dim", Role::vmap_remove},
    Wrapper{"_vmap_decrement_nesting", Role::vmap_leave},
    Wrapper{"lazy_load_decompositions", Role::nothing},
};

template <size_t N>
std::optional<Role> find_role(std::string_view target, std::string_view prefix,
                              const std::array<Wrapper, N>& known) {
  if (!target.starts_with(prefix)) return std::nullopt;
  for (const auto& wrapper : known)
    if (target.substr(prefix.size()) == wrapper.name) return wrapper.role;
  return std::nullopt;
}

// "torch.ops.aten.add.Tensor" -> {"aten::add", "Tensor"}; the overload "default" has no name.
std::optional<c10::OperatorName> operator_name(std::string_view target) {
  if (!target.starts_with(kOps)) return std::nullopt;
  target.remove_prefix(kOps.size());
  const auto space = target.find('.'), overload = target.rfind('.');
  if (space == overload) return std::nullopt;
  const auto name = std::string(target.substr(0, space)) +
                    "::" + std::string(target.substr(space + 1, overload - space - 1));
  const auto variant = target.substr(overload + 1);
  return c10::OperatorName(name, variant == "default" ? "" : std::string(variant));
}

std::string readable(const spec::Node& node) {
  const auto name = operator_name(node.target);
  return name ? c10::toString(*name) : node.target;
}

std::string why_missing(const spec::Node& node) {
  if (node.target.starts_with(kHigherOrder)) return "this higher-order operator is not supported";
  const auto name = operator_name(node.target);
  if (!name) return "it is a Python function; only operators of PyTorch's C++ library can run here";
  if (name->getNamespace() == "aten") return "the PyTorch that is linked here does not have it";
  return "it is registered by a Python package, not by PyTorch's C++ library; choose an implementation of "
         "the model that "
         "uses PyTorch's own operators and export again";
}

}  // namespace

std::string describe(const spec::Node& node) {
  return cat("node '", node.name, "' (", readable(node), ")", node.source_line.empty() ? "" : ", ",
             node.source_line);
}

Resolved resolve(const spec::Node& node) {
  Resolved resolved;
  resolved.symbolic = find_sym_operator(node.target);
  if (resolved.symbolic != nullptr) {
    resolved.role = Role::symbolic;
    return resolved;
  }
  auto role = find_role(node.target, kHigherOrder, kWrappers);
  if (!role) role = find_role(node.target, kVmap, kVmapCalls);
  if (role) {
    resolved.role = *role;
    return resolved;
  }
  if (const auto name = operator_name(node.target))
    resolved.op = c10::Dispatcher::singleton().findSchema(*name);
  if (!resolved.op)
    fail(ErrorCode::unsupported, describe(node), ": this operator cannot run: ", why_missing(node));
  return resolved;
}

ResolvedGraph resolve(const spec::Graph& graph) {
  const auto all = [](const std::vector<spec::Node>& nodes) {
    std::vector<Resolved> resolved;
    resolved.reserve(nodes.size());
    for (const auto& node : nodes) resolved.push_back(resolve(node));
    return resolved;
  };
  ResolvedGraph resolved{all(graph.nodes), {}};
  for (const auto& body : graph.subgraphs) resolved.bodies.push_back(all(body.nodes));
  return resolved;
}

}  // namespace trireme::graph

#pragma once
// A graph made ready to run: every operator resolved, every constant argument converted, so that a run only
// moves values between a frame (one IValue per spec::ValueId) and the dispatcher's stack.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <memory>
#include <optional>
#include <vector>

#include "trireme/graph/sym_ops.h"
#include "trireme/spec/graph.h"

namespace trireme::graph {

enum class Role : uint8_t {
  call,        // an operator of the dispatcher
  symbolic,    // arithmetic on sizes
  grad_mode,   // wrap_with_set_grad_enabled(enabled, body, operands…)
  autocast,    // wrap_with_autocast(device_type, dtype, enabled, cache_enabled, body, operands…)
  cond,        // cond(predicate, then, else, operands)
  while_loop,  // while_loop(condition, body, carried, constant operands)
  inlined,     // a body that runs as it stands: checkpoint and compile-region wrappers
  // The four calls between which torch.vmap runs its function, and a fifth that only loads Python code.
  vmap_enter,   // (batch_size, randomness)
  vmap_add,     // (tensor, dimension, level)
  vmap_remove,  // (tensor, level, batch_size, dimension)
  vmap_leave,   // ()
  nothing,
};

struct Resolved {
  Role role = Role::call;
  std::optional<c10::OperatorHandle> op;  // call
  const SymOperator* symbolic = nullptr;  // symbolic
};

// Error(unsupported) names the node, the operator and the recorded Python line.
Resolved resolve(const spec::Node& node);

// An argument that is known only at run time; written over its place on the stack.
struct Slot {
  enum class Kind : uint8_t {
    value,          // as it is in the frame
    scalar_tensor,  // a number that becomes a tensor
    real,           // a number that becomes a double
    ints,
    reals,
    bools,
    tensors,
    optional_tensors,
    tensor_lists,
  };
  size_t position = 0;
  Kind kind = Kind::value;
  std::vector<spec::ValueId> ids;  // kNoValue: the constant counts (numbers), or none (tensors)
  std::vector<int64_t> ints;
  std::vector<double> reals;  // of reals and bools
  std::vector<std::vector<spec::ValueId>> lists;
};

// What becomes of one result on the stack: kept under one id, spread over several, or dropped (empty).
struct Result {
  bool is_list = false;
  std::vector<spec::ValueId> ids;
};

struct Body;
struct Instruction {
  const spec::Node* node = nullptr;
  Resolved resolved;
  std::vector<c10::IValue>
      constants;  // the stack before slots are written; of wrappers: what stands before the body
  std::vector<Slot> slots;
  std::vector<Result> results;
  std::vector<std::unique_ptr<Body>> bodies;
  std::vector<spec::ValueId> operands;  // of bodies
};

struct Body {
  std::vector<spec::ValueId> inputs;
  std::vector<Instruction> instructions;
  std::vector<std::vector<spec::ValueId>> dead;  // per instruction: values that nobody reads after it
  std::vector<spec::ValueId> outputs;            // kNoValue: the constant counts
  std::vector<c10::IValue> constant_outputs;
};

struct Target {
  c10::Device device{c10::kCPU};  // stands for the device recorded at export
  bool evaluate = false;          // dropout off, batch norm by its running statistics
};

// `resolved` and `bodies` are parallel to graph.nodes and graph.subgraphs. The graph outlives the result.
// Error(unsupported) for an operator without a kernel for the device, Error(input) for arguments that do not
// fit it.
struct ResolvedGraph {
  std::vector<Resolved> nodes;
  std::vector<std::vector<Resolved>> bodies;
};
ResolvedGraph resolve(const spec::Graph& graph);
std::vector<Instruction> make_instructions(const spec::Graph& graph, const ResolvedGraph& resolved,
                                           const Target& target);

// For instructions [begin, end): the values that none of them reads any more after each, `kept` excepted.
std::vector<std::vector<spec::ValueId>> dead_after(const std::vector<spec::Node>& nodes, size_t begin,
                                                   size_t end, const std::vector<bool>& kept);

// "node 'linear_3' (aten::linear), model.py:41 in forward: y = …"
std::string describe(const spec::Node& node);

}  // namespace trireme::graph

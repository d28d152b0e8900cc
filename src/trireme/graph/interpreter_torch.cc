#include "trireme/graph/interpreter_torch.h"

#include <ATen/ScalarOps.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/List.h>
#include <ATen/core/grad_mode.h>
#include <ATen/functorch/BatchedTensorImpl.h>
#include <ATen/functorch/DynamicLayer.h>

#include <array>

#include "trireme/base/error.h"
#include "trireme/tensor/adaptor_torch.h"

namespace trireme::graph {
namespace {

using c10::IValue;
using spec::ValueId;

template <typename T, typename Element>
c10::List<T> list_of(const std::vector<ValueId>& ids, Element element) {
  c10::List<T> list;
  list.reserve(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) list.push_back(element(i, ids[i]));
  return list;
}

double real(const IValue& value) {
  return value.toScalar().toDouble();
}
bool truth(const IValue& value) {
  return value.isTensor() ? value.toTensor().item().toBool() : value.toScalar().toBool();
}

Scalar to_scalar(const IValue& value) {
  if (value.isInt()) return value.toInt();
  if (value.isBool()) return value.toBool();
  if (value.isDouble()) return value.toDouble();
  fail(ErrorCode::input, "a size is a ", value.tagKind());
}
IValue from_scalar(const Scalar& scalar) {
  return std::visit([](auto value) { return IValue(value); }, scalar);
}

// The region's autocast settings, and those before it again at its end.
class AutocastRegion {
 public:
  AutocastRegion(c10::DeviceType type, const std::vector<IValue>& settings)
      : type_(type),
        enabled_(at::autocast::is_autocast_enabled(type)),
        cache_(at::autocast::is_autocast_cache_enabled()),
        dtype_(at::autocast::get_autocast_dtype(type)) {
    at::autocast::increment_nesting();
    at::autocast::set_autocast_enabled(type, settings[2].toBool());
    if (settings[1].isInt()) at::autocast::set_autocast_dtype(type, settings[1].toScalarType());
    if (settings[3].isBool()) at::autocast::set_autocast_cache_enabled(settings[3].toBool());
  }
  ~AutocastRegion() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(type_, enabled_);
    at::autocast::set_autocast_dtype(type_, dtype_);
    at::autocast::set_autocast_cache_enabled(cache_);
  }
  AutocastRegion(const AutocastRegion&) = delete;
  AutocastRegion& operator=(const AutocastRegion&) = delete;

 private:
  c10::DeviceType type_;
  bool enabled_, cache_;
  at::ScalarType dtype_;
};

// Nested torch.vmap regions open on this thread. Whatever a run opened is closed at its end, also by an
// error.
class VmapRegions {
 public:
  VmapRegions() : before_(at::functorch::getDynamicLayerStack().size()) {}
  ~VmapRegions() {
    while (any_open()) at::functorch::popDynamicLayerAndDeleteMetadata();
  }
  VmapRegions(const VmapRegions&) = delete;
  VmapRegions& operator=(const VmapRegions&) = delete;
  bool any_open() const { return at::functorch::getDynamicLayerStack().size() > before_; }

 private:
  size_t before_;
};

at::functorch::RandomnessType randomness(const IValue& value) {
  using at::functorch::RandomnessType;
  const auto& text = value.toStringRef();
  return text == "same"        ? RandomnessType::Same
         : text == "different" ? RandomnessType::Different
                               : RandomnessType::Error;
}

// The batch dimension of this level becomes an ordinary one; a result that does not depend on it is repeated.
at::Tensor remove_batch_dimension(const at::Tensor& tensor, int64_t level, int64_t batch_size,
                                  int64_t dimension) {
  const auto* batched = at::functorch::maybeGetBatchedImpl(tensor);
  if (batched != nullptr && batched->level() == level)
    return batched->value().movedim(batched->bdim(), dimension);
  std::vector<int64_t> sizes(tensor.sizes().begin(), tensor.sizes().end());
  sizes.insert(sizes.begin(), batch_size);
  return tensor.expand(sizes).movedim(0, dimension);
}

}  // namespace

void Interpreter::run(std::span<const Instruction> instructions, std::span<const std::vector<ValueId>> dead,
                      const std::string& where) {
  try {
    const VmapRegions regions;
    run(instructions, dead);
    if (regions.any_open()) fail(ErrorCode::unsupported, "the nodes run end inside a torch.vmap region");
  } catch (const Error& e) {
    fail(e.code(), where, ": ", current_ ? describe(*current_->node) + ": " : "", e.what());
  } catch (...) {
    tensor::rethrow_as_error(cat(where, current_ ? ": " + describe(*current_->node) : ""));
  }
}

void Interpreter::run(std::span<const Instruction> instructions, std::span<const std::vector<ValueId>> dead) {
  for (size_t i = 0; i < instructions.size(); ++i) {
    current_ = &instructions[i];
    step(instructions[i]);
    for (const ValueId id : dead[i]) frame_[static_cast<size_t>(id)] = IValue();
  }
}

void Interpreter::step(const Instruction& instruction) {
  switch (instruction.resolved.role) {
    case Role::call:
      return call(instruction);
    case Role::symbolic:
      return compute(instruction);
    case Role::cond:
      return branch(instruction);
    case Role::while_loop:
      return loop(instruction);
    case Role::grad_mode:
    case Role::autocast:
    case Role::inlined:
      return wrap(instruction);
    case Role::vmap_enter:
    case Role::vmap_add:
    case Role::vmap_remove:
    case Role::vmap_leave:
      return vmap(instruction);
    case Role::nothing:
      return;
  }
}

void Interpreter::call(const Instruction& instruction) {
  std::vector<IValue> stack = constants(instruction);
  instruction.resolved.op->callBoxed(stack);
  keep(instruction, std::move(stack));
}

void Interpreter::compute(const Instruction& instruction) {
  std::array<Scalar, 3> inputs;  // no operator on sizes takes more
  const auto stack = constants(instruction);
  for (size_t i = 0; i < stack.size(); ++i) inputs[i] = to_scalar(stack[i]);
  keep(instruction,
       {from_scalar(instruction.resolved.symbolic->apply(std::span(inputs).first(stack.size())))});
}

void Interpreter::wrap(const Instruction& instruction) {
  const auto body = [&] { keep(instruction, run_body(*instruction.bodies[0], operands(instruction))); };
  const auto& settings = instruction.constants;
  if (instruction.resolved.role == Role::grad_mode) {
    const c10::AutoGradMode mode(gradients_ && settings[0].toBool());
    body();
  } else if (instruction.resolved.role == Role::autocast) {
    const AutocastRegion region(c10::Device(settings[0].toStringRef()).type(), settings);
    body();
  } else {
    body();
  }
}

// PyTorch gives the operands of the branch not taken zero gradients, which weight decay and running averages
// tell from none: a sum over no elements leads to each.
void Interpreter::branch(const Instruction& instruction) {
  const size_t chosen = truth(constants(instruction)[0]) ? 0 : 1;
  const auto given = operands(instruction);
  auto results = run_body(*instruction.bodies[chosen], given);
  at::Tensor nothing;
  for (const IValue& operand : given) {
    if (!at::GradMode::is_enabled() || !operand.isTensor() || !operand.toTensor().requires_grad()) continue;
    const at::Tensor& t = operand.toTensor();
    const at::Tensor term = (t.dim() == 0 ? t.unsqueeze(0) : t).narrow(0, 0, 0).sum();
    nothing = nothing.defined() ? nothing.add(term) : term;
  }
  for (IValue& result : results) {
    if (!nothing.defined() || !result.isTensor() || !result.toTensor().is_floating_point()) continue;
    result = result.toTensor().add(nothing.to(result.toTensor().options()));
    break;
  }
  keep(instruction, std::move(results));
}

void Interpreter::loop(const Instruction& instruction) {
  std::vector<IValue> state = operands(instruction);
  while (true) {
    const auto condition = run_body(*instruction.bodies[0], state);
    if (condition.size() != 1) fail(ErrorCode::input, "a loop's condition is one value");
    if (!truth(condition[0])) break;
    auto next = run_body(*instruction.bodies[1], state);
    if (next.size() > state.size()) fail(ErrorCode::input, "a loop's body makes more values than it takes");
    std::move(next.begin(), next.end(), state.begin());  // operands past the carried ones stay
  }
  state.resize(instruction.results.size());
  keep(instruction, std::move(state));
}

void Interpreter::vmap(const Instruction& instruction) {
  const auto stack = constants(instruction);
  const Role role = instruction.resolved.role;
  if (role == Role::vmap_enter) {
    at::functorch::initAndPushDynamicLayer(at::functorch::TransformType::Vmap, c10::SymInt(stack[0].toInt()),
                                           randomness(stack[1]));
  } else if (role == Role::vmap_leave) {
    at::functorch::popDynamicLayerAndDeleteMetadata();
  } else if (role == Role::vmap_add) {
    keep(instruction, {at::functorch::addBatchDim(stack[0].toTensor(), stack[1].toInt(), stack[2].toInt())});
  } else {
    keep(instruction,
         {remove_batch_dimension(stack[0].toTensor(), stack[1].toInt(), stack[2].toInt(), stack[3].toInt())});
  }
}

std::vector<IValue> Interpreter::constants(const Instruction& instruction) const {
  std::vector<IValue> stack;
  // Room for results, which mostly are fewer than arguments.
  stack.reserve(instruction.constants.size() + instruction.results.size());
  stack.assign(instruction.constants.begin(), instruction.constants.end());
  for (const auto& slot : instruction.slots) write(slot, stack);
  return stack;
}

void Interpreter::write(const Slot& slot, std::vector<IValue>& stack) const {
  const auto value = [this](ValueId id) -> const IValue& { return frame_[static_cast<size_t>(id)]; };
  IValue& place = stack[slot.position];
  switch (slot.kind) {
    case Slot::Kind::value:
      place = value(slot.ids[0]);
      return;
    case Slot::Kind::scalar_tensor:
      place = at::native::wrapped_scalar_tensor(value(slot.ids[0]).toScalar());
      return;
    case Slot::Kind::real:
      place = real(value(slot.ids[0]));
      return;
    case Slot::Kind::ints:
      place = list_of<int64_t>(slot.ids, [&](size_t i, ValueId id) {
        return id == spec::kNoValue ? slot.ints[i] : value(id).toInt();
      });
      return;
    case Slot::Kind::reals:
      place = list_of<double>(slot.ids, [&](size_t i, ValueId id) {
        return id == spec::kNoValue ? slot.reals[i] : real(value(id));
      });
      return;
    case Slot::Kind::bools:
      place = list_of<bool>(slot.ids, [&](size_t i, ValueId id) {
        return id == spec::kNoValue ? slot.reals[i] != 0 : truth(value(id));
      });
      return;
    case Slot::Kind::tensors:
      place = list_of<at::Tensor>(slot.ids, [&](size_t, ValueId id) { return value(id).toTensor(); });
      return;
    case Slot::Kind::optional_tensors:
      place = list_of<std::optional<at::Tensor>>(slot.ids, [&](size_t, ValueId id) {
        return id == spec::kNoValue ? std::nullopt : value(id).toOptional<at::Tensor>();
      });
      return;
    case Slot::Kind::tensor_lists: {
      c10::List<c10::List<at::Tensor>> lists;
      for (const auto& ids : slot.lists) {
        lists.push_back(list_of<at::Tensor>(ids, [&](size_t, ValueId id) { return value(id).toTensor(); }));
      }
      place = std::move(lists);
      return;
    }
  }
}

void Interpreter::keep(const Instruction& instruction, std::vector<IValue> results) {
  if (observer_) observer_(*instruction.node, results);
  if (results.size() < instruction.results.size())
    fail(ErrorCode::input, "it gave ", results.size(), " results, the file names ",
         instruction.results.size());
  for (size_t i = 0; i < instruction.results.size(); ++i) {
    const auto& wanted = instruction.results[i];
    if (!wanted.is_list) {
      if (!wanted.ids.empty()) frame_[static_cast<size_t>(wanted.ids[0])] = std::move(results[i]);
      continue;
    }
    const auto items = results[i].toListRef();
    if (items.size() != wanted.ids.size())
      fail(ErrorCode::input, "it gave a list of ", items.size(), ", the file names ", wanted.ids.size());
    for (size_t k = 0; k < items.size(); ++k) frame_[static_cast<size_t>(wanted.ids[k])] = items[k];
  }
}

std::vector<IValue> Interpreter::operands(const Instruction& instruction) const {
  std::vector<IValue> values;
  values.reserve(instruction.operands.size());
  for (const ValueId id : instruction.operands)
    values.push_back(id == spec::kNoValue ? IValue() : frame_[static_cast<size_t>(id)]);
  return values;
}

std::vector<IValue> Interpreter::run_body(const Body& body, const std::vector<IValue>& inputs) {
  for (size_t i = 0; i < body.inputs.size(); ++i)
    if (body.inputs[i] != spec::kNoValue) frame_[static_cast<size_t>(body.inputs[i])] = inputs[i];
  run(body.instructions, body.dead);
  std::vector<IValue> outputs;
  outputs.reserve(body.outputs.size());
  for (size_t i = 0; i < body.outputs.size(); ++i)
    outputs.push_back(body.outputs[i] == spec::kNoValue ? body.constant_outputs[i]
                                                        : frame_[static_cast<size_t>(body.outputs[i])]);
  for (const auto* ids : {&body.inputs, &body.outputs})
    for (const ValueId id : *ids)
      if (id != spec::kNoValue) frame_[static_cast<size_t>(id)] = IValue();
  return outputs;
}

}  // namespace trireme::graph

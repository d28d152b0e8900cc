#pragma once
// Runs instructions over a frame. Without state of its own between calls.
#include <functional>
#include <span>

#include "trireme/graph/instruction_torch.h"

namespace trireme::graph {

using Frame = std::vector<c10::IValue>;  // by spec::ValueId

class Interpreter {
 public:
  using Observer = std::function<void(const spec::Node&, const std::vector<c10::IValue>& outputs)>;
  // `gradients`: whether the graph's own enable_grad and no_grad regions apply; false: nothing records, come
  // what may. An empty observer is not called.
  Interpreter(Frame& frame, bool gradients, const Observer& observer)
      : frame_(frame), gradients_(gradients), observer_(observer) {}

  // `dead` is parallel to the instructions. Errors name `where`, the node, its operator and its Python line.
  void run(std::span<const Instruction> instructions, std::span<const std::vector<spec::ValueId>> dead,
           const std::string& where);

 private:
  void run(std::span<const Instruction> instructions, std::span<const std::vector<spec::ValueId>> dead);
  void step(const Instruction& instruction);
  void call(const Instruction& instruction);
  void compute(const Instruction& instruction);
  void wrap(const Instruction& instruction);
  void branch(const Instruction& instruction);
  void loop(const Instruction& instruction);
  void vmap(const Instruction& instruction);
  void write(const Slot& slot, std::vector<c10::IValue>& stack) const;
  void keep(const Instruction& instruction, std::vector<c10::IValue> results);
  std::vector<c10::IValue> operands(const Instruction& instruction) const;
  std::vector<c10::IValue> run_body(const Body& body, const std::vector<c10::IValue>& inputs);
  std::vector<c10::IValue> constants(const Instruction& instruction) const;

  Frame& frame_;
  bool gradients_;
  const Observer& observer_;
  const Instruction* current_ = nullptr;  // for errors
};

}  // namespace trireme::graph

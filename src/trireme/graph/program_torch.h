#pragma once
// What Program hides from its users and shares with Executor.
#include "trireme/graph/executor_torch.h"
#include "trireme/graph/input_check.h"
#include "trireme/graph/instruction_torch.h"

namespace trireme::graph {

struct Program::State {
  explicit State(std::shared_ptr<const Pt2File> f);
  std::shared_ptr<const Pt2File> file;
  ResolvedGraph resolved;
  InputCheck check_inputs;
  int loss = -1;
  bool has_backward = false;  // a joint graph, whose outputs are gradients
};

}  // namespace trireme::graph

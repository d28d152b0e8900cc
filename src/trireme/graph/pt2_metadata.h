#pragma once
// What torch.export records beside each node for people: where in the user's Python it came from.
#include <string>
#include <string_view>

namespace trireme::graph {

// "key,path,type;key,path,type" -> path of the last entry: "blocks.3.mlp".
std::string innermost_module(std::string_view nn_module_stack);

// A Python traceback -> "model.py:41 in forward: y = self.up(x)": the innermost line outside torch itself,
// since the reader looks for his own code, not for torch/nn/functional.py.
std::string source_line(std::string_view stack_trace);

}  // namespace trireme::graph

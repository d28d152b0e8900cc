#include "trireme/graph/program_torch.h"

#include "trireme/base/error.h"

namespace trireme::graph {
namespace {

// The position among the outputs that run() returns.
int find_loss(const spec::Graph& graph) {
  int position = 0, first_scalar = -1;
  for (const auto& output : graph.outputs) {
    if (output.kind == spec::OutputKind::loss) return position;
    if (output.kind != spec::OutputKind::user) continue;
    if (const auto* ref = std::get_if<spec::ValueRef>(&output.value); ref != nullptr && first_scalar < 0) {
      const auto& value = graph.values.at(static_cast<size_t>(ref->id));
      using spec::Dtype;
      const bool is_float = value.dtype == Dtype::f32 || value.dtype == Dtype::f64 ||
                            value.dtype == Dtype::f16 || value.dtype == Dtype::bf16;
      if (value.kind == spec::ValueKind::tensor && value.sizes.empty() && is_float) first_scalar = position;
    }
    ++position;
  }
  return first_scalar;
}

}  // namespace

Program::State::State(std::shared_ptr<const Pt2File> f)
    : file(std::move(f)),
      resolved(resolve(file->graph())),
      check_inputs(file->graph()),
      loss(find_loss(file->graph())) {
  for (const auto& output : file->graph().outputs)
    has_backward |= output.kind == spec::OutputKind::parameter_gradient;
}

std::shared_ptr<const Program> Program::load(const std::filesystem::path& path) {
  return from(std::make_shared<Pt2File>(path));
}

std::shared_ptr<const Program> Program::from(std::shared_ptr<const Pt2File> file) {
  const std::string path = file->path().string();
  try {
    return std::shared_ptr<const Program>(new Program(std::make_unique<State>(std::move(file))));
  } catch (const Error& e) {
    fail(e.code(), path, ": ", e.what());
  }
}

Program::Program(std::unique_ptr<State> state) : state_(std::move(state)) {}
Program::~Program() = default;
const spec::Graph& Program::graph() const {
  return state_->file->graph();
}
const Pt2File& Program::file() const {
  return *state_->file;
}
int Program::loss_output() const {
  return state_->loss;
}

}  // namespace trireme::graph

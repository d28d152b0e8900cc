#include "trireme/serve/pt2_backend_torch.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/graph/executor_torch.h"
#include "trireme/graph/zip_reader.h"
#include "trireme/serve/aoti_backend_torch.h"
#include "trireme/serve/graph_info.h"
#include "trireme/serve/tensors_torch.h"
#include "trireme/tensor/adaptor_torch.h"

namespace trireme::serve {
namespace {

using c10::IValue;

class Pt2Backend : public Backend {
 public:
  Pt2Backend(std::shared_ptr<const graph::Program> program, ModelInfo info, const ModelOptions& options,
             int64_t threads)
      : info_(std::move(info)),
        threads_(options.threads > 0 ? options.threads : threads),
        executor_(std::move(program), {.device = parse_device(options.device), .weights = options.weights}) {}

  const ModelInfo& info() const override { return info_; }

  void adopt_thread() override { at::set_num_threads(static_cast<int>(threads_)); }

  std::vector<Tensor> run(const std::vector<RunInput>& inputs) override {
    std::vector<Tensor> outputs;
    tensor::translate_torch_errors(info_.name, [&] {
      std::vector<IValue> values;
      for (size_t i = 0; i < inputs.size(); ++i)
        values.emplace_back(joined(inputs[i], info_.inputs[i].dtype));
      auto results = executor_.run(values, graph::Mode::inference);
      std::erase_if(results, [](const IValue& v) { return v.isNone(); });
      TRIREME_CHECK(results.size() == info_.outputs.size());
      for (size_t i = 0; i < results.size(); ++i)
        outputs.push_back(to_output(info_.outputs[i].name, results[i]));
    });
    return outputs;
  }

 private:
  ModelInfo info_;
  int64_t threads_;
  graph::Executor executor_;
};

ModelInfo describe_model(const spec::Graph& graph, const ModelOptions& options, const char* platform) {
  ModelInfo info;
  try {
    info = describe_graph(graph);
  } catch (const Error& e) {
    fail(e.code(), options.path, ": ", e.what());
  }
  info.name = options.name;
  info.version = options.version;
  info.platform = platform;
  return info;
}

bool is_compiled(const std::string& path) {
  const graph::ZipReader archive(path);
  return std::ranges::any_of(archive.entries(), [](const auto& entry) {
    return entry.first.find("/data/aotinductor/") != std::string::npos;
  });
}

}  // namespace

Instances load_model(const ModelOptions& options, int64_t threads) {
  threads = std::min<int64_t>(threads, at::get_num_threads());  // OMP_NUM_THREADS
  Instances instances;
  if (is_compiled(options.path)) {
    const graph::Pt2File file(options.path);
    const ModelInfo info = describe_model(file.graph(), options, "pytorch_aotinductor");
    for (int64_t i = 0; i < options.instances; ++i)
      instances.push_back(make_aoti_backend(file, info, options, threads));
    return instances;
  }
  const auto program = graph::Program::load(options.path);
  const ModelInfo info = describe_model(program->graph(), options, "pytorch_pt2");
  for (int64_t i = 0; i < options.instances; ++i)
    instances.push_back(std::make_unique<Pt2Backend>(program, info, options, threads));
  return instances;
}

}  // namespace trireme::serve

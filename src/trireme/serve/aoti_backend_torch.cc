#include "trireme/serve/aoti_backend_torch.h"

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include "trireme/base/error.h"
#include "trireme/graph/weights_torch.h"
#include "trireme/serve/tensors_torch.h"
#include "trireme/tensor/adaptor_torch.h"

namespace trireme::serve {
namespace {

class AotiBackend : public Backend {
 public:
  AotiBackend(const graph::Pt2File& file, ModelInfo info, const ModelOptions& options, int64_t threads)
      : info_(std::move(info)), threads_(options.threads > 0 ? options.threads : threads) {
    const tensor::Device device = parse_device(options.device);
    if (device.kind != tensor::Device::Kind::cpu)
      fail(ErrorCode::unsupported, options.path,
           ": compiled packages are served on the CPU only; export without compile");
    tensor::translate_torch_errors(options.path, [&] {
      loader_ = std::make_unique<torch::inductor::AOTIModelPackageLoader>(options.path, "model", true, 1, -1);
      if (!options.weights.empty()) load_weights(file, options, device);
    });
  }

  const ModelInfo& info() const override { return info_; }
  void adopt_thread() override { at::set_num_threads(static_cast<int>(threads_)); }

  std::vector<Tensor> run(const std::vector<RunInput>& inputs) override {
    std::vector<Tensor> outputs;
    tensor::translate_torch_errors(info_.name, [&] {
      const c10::InferenceMode mode;
      std::vector<at::Tensor> values;
      for (size_t i = 0; i < inputs.size(); ++i) values.push_back(joined(inputs[i], info_.inputs[i].dtype));
      const auto results = loader_->boxed_run(std::move(values));
      if (results.size() != info_.outputs.size())
        fail(ErrorCode::unsupported, "the compiled code returns ", results.size(), " tensors, the graph ",
             info_.outputs.size());
      for (size_t i = 0; i < results.size(); ++i)
        outputs.push_back(to_output(info_.outputs[i].name, results[i]));
    });
    return outputs;
  }

 private:
  void load_weights(const graph::Pt2File& file, const ModelOptions& options, tensor::Device device) {
    const auto weights = graph::load_weights(file, {.device = device, .weights = options.weights}, c10::kCPU);
    std::unordered_map<std::string, at::Tensor> by_name;
    const auto& inputs = file.graph().inputs;
    for (size_t i = 0; i < inputs.size(); ++i)
      if (weights.inputs[i].defined()) by_name[inputs[i].name] = weights.inputs[i].detach();
    for (const auto* list : {&weights.parameters, &weights.buffers})
      for (const auto& p : *list)
        for (const auto& alias : p.aliases) by_name[alias] = p.tensor.detach();
    std::unordered_map<std::string, at::Tensor> wanted;
    for (const auto& name : loader_->get_constant_fqns()) {
      const auto found = by_name.find(name);
      if (found == by_name.end())
        fail(ErrorCode::input, options.path, ": the compiled code reads weight '", name,
             "', which the graph lacks");
      wanted.insert(*found);
    }
    loader_->load_constants(wanted, false, true);
  }

  ModelInfo info_;
  int64_t threads_;
  std::unique_ptr<torch::inductor::AOTIModelPackageLoader> loader_;
};

}  // namespace

std::unique_ptr<Backend> make_aoti_backend(const graph::Pt2File& file, const ModelInfo& info,
                                           const ModelOptions& options, int64_t threads) {
  return std::make_unique<AotiBackend>(file, info, options, threads);
}

}  // namespace trireme::serve

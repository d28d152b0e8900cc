#include "trireme/serve/pt2_backend_torch.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>

#include <charconv>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/graph/executor_torch.h"
#include "trireme/serve/graph_info.h"
#include "trireme/tensor/adaptor_torch.h"

namespace trireme::serve {
namespace {

using c10::IValue;

tensor::Device parse_device(const std::string& text) {
  using Kind = tensor::Device::Kind;
  if (text == "cpu") return {};
  tensor::Device device{Kind::cuda, 0};
  const std::string_view view(text);
  if (view == "cuda") return device;
  const auto digits = view.starts_with("cuda:") ? view.substr(5) : std::string_view();
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), device.index);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size() || device.index < 0)
    fail(ErrorCode::usage, "model.device = '", text, "': must be cpu or cuda:N");
  return device;
}

// The pieces end to end, in aligned memory that the graph may write to.
at::Tensor joined(const RunInput& input, spec::Dtype dtype) {
  at::Tensor whole = at::empty(input.shape, tensor::to_torch(dtype));
  auto* to = static_cast<std::byte*>(whole.data_ptr());
  for (const auto piece : input.pieces) {
    if (!piece.empty()) std::memcpy(to, piece.data(), piece.size());
    to += piece.size();
  }
  return whole;
}

Tensor to_output(const std::string& name, const IValue& value) {
  at::Tensor t = value.isTensor()   ? value.toTensor()
                 : value.isInt()    ? at::scalar_tensor(value.toInt(), at::kLong).reshape({1})
                 : value.isDouble() ? at::scalar_tensor(value.toDouble(), at::kDouble).reshape({1})
                                    : at::scalar_tensor(value.toBool(), at::kBool).reshape({1});
  auto owner = std::make_shared<at::Tensor>(t.cpu().contiguous().resolve_neg());
  const std::span bytes(static_cast<const std::byte*>(owner->const_data_ptr()), owner->nbytes());
  const auto sizes = owner->sizes();
  return {name, tensor::from_torch(owner->scalar_type()), {sizes.begin(), sizes.end()}, bytes, owner};
}

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

}  // namespace

Instances load_pt2(const ModelOptions& options, int64_t threads) {
  const auto program = graph::Program::load(options.path);
  ModelInfo info;
  try {
    info = describe_graph(program->graph());
  } catch (const Error& e) {
    fail(e.code(), options.path, ": ", e.what());
  }
  info.name = options.name;
  info.version = options.version;
  info.platform = "pytorch_pt2";
  Instances instances;
  for (int64_t i = 0; i < options.instances; ++i)
    instances.push_back(std::make_unique<Pt2Backend>(program, info, options, threads));
  return instances;
}

}  // namespace trireme::serve

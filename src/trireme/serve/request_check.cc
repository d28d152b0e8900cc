#include "trireme/serve/request_check.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/serve/datatypes.h"

namespace trireme::serve {
namespace {

template <typename... Parts>
[[noreturn]] void invalid(const Parts&... parts) {
  throw RequestError(Reason::invalid, cat(parts...));
}

bool fits(const spec::Shape& given, const spec::Shape& wanted) {
  return std::ranges::equal(given, wanted,
                            [](int64_t g, int64_t w) { return w == TensorSpec::kAny || g == w; });
}

void check_input(const TensorSpec& wanted, const Tensor& given) {
  if (given.dtype != wanted.dtype)
    invalid("input '", wanted.name, "' is ", datatype_name(given.dtype), ", the model takes ",
            datatype_name(wanted.dtype));
  if (!fits(given.shape, wanted.shape))
    invalid("input '", wanted.name, "' has shape ", spec::to_text(given.shape), ", the model takes ",
            spec::to_text(wanted.shape), " (-1: any)");
}

std::string names_of(const std::vector<TensorSpec>& tensors) {
  std::string all;
  for (const auto& t : tensors) all += (all.empty() ? "" : ", ") + t.name;
  return all;
}

void check_outputs(const ModelInfo& model, const InferRequest& request) {
  for (size_t i = 0; i < request.outputs.size(); ++i) {
    const auto& name = request.outputs[i].name;
    const auto is_it = [&](const auto& t) { return t.name == name; };
    if (std::ranges::none_of(model.outputs, is_it))
      invalid("output '", name, "' is not one of the model: ", names_of(model.outputs));
    if (std::any_of(request.outputs.begin(), request.outputs.begin() + static_cast<std::ptrdiff_t>(i), is_it))
      invalid("output '", name, "' is asked for twice");
  }
}

}  // namespace

int64_t check_request(const ModelInfo& model, InferRequest& request) {
  std::vector<Tensor> ordered;
  for (const auto& wanted : model.inputs) {
    const auto is_it = [&](const Tensor& t) { return t.name == wanted.name; };
    const auto found = std::ranges::find_if(request.inputs, is_it);
    if (found == request.inputs.end())
      invalid("input '", wanted.name, "' is missing; the model takes ", names_of(model.inputs));
    check_input(wanted, *found);
    ordered.push_back(std::move(*found));
    request.inputs.erase(found);
  }
  if (!request.inputs.empty()) {
    const auto& extra = request.inputs[0].name;
    const bool twice = std::ranges::any_of(model.inputs, [&](const auto& t) { return t.name == extra; });
    invalid("input '", extra,
            twice ? "' is given twice" : "' is not one of the model: ", twice ? "" : names_of(model.inputs));
  }
  request.inputs = std::move(ordered);
  check_outputs(model, request);
  if (!model.joinable) return 1;
  const int64_t rows = request.inputs[0].shape[0];
  for (const auto& input : request.inputs)
    if (input.shape[0] != rows)
      invalid("input '", input.name, "' has ", input.shape[0], " rows, '", request.inputs[0].name, "' has ",
              rows);
  if (rows < 1 || rows > model.max_rows)
    invalid("a request of ", rows, " rows: the model takes 1 to ", model.max_rows);
  return rows;
}

std::vector<int64_t> join_key(const ModelInfo& model, const InferRequest& request) {
  std::vector<int64_t> key;
  if (!model.joinable) return key;
  for (size_t i = 0; i < model.inputs.size(); ++i)
    for (size_t d = 1; d < model.inputs[i].shape.size(); ++d)
      if (model.inputs[i].shape[d] == TensorSpec::kAny) key.push_back(request.inputs[i].shape[d]);
  return key;
}

}  // namespace trireme::serve

#include "trireme/serve/tensors_torch.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>

#include <charconv>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/tensor/adaptor_torch.h"

namespace trireme::serve {

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

}  // namespace trireme::serve

#include "trireme/tensor/adaptor_torch.h"

#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>

#include <array>

#include "trireme/base/error.h"

namespace trireme::tensor {
namespace {

using spec::Dtype;
struct Pair {
  Dtype ours;
  at::ScalarType torch;
};
constexpr std::array kPairs{
    Pair{Dtype::u8, at::kByte},
    Pair{Dtype::i8, at::kChar},
    Pair{Dtype::i16, at::kShort},
    Pair{Dtype::i32, at::kInt},
    Pair{Dtype::i64, at::kLong},
    Pair{Dtype::f16, at::kHalf},
    Pair{Dtype::f32, at::kFloat},
    Pair{Dtype::f64, at::kDouble},
    Pair{Dtype::bf16, at::kBFloat16},
    Pair{Dtype::c64, at::kComplexFloat},
    Pair{Dtype::c128, at::kComplexDouble},
    Pair{Dtype::boolean, at::kBool},
    Pair{Dtype::u16, at::kUInt16},
    Pair{Dtype::u32, at::kUInt32},
    Pair{Dtype::u64, at::kUInt64},
    Pair{Dtype::f8_e4m3, at::kFloat8_e4m3fn},
    Pair{Dtype::f8_e5m2, at::kFloat8_e5m2},
};

std::string first_line(const c10::Error& e) {
  const std::string text = e.what_without_backtrace();
  return text.substr(0, text.find('\n'));
}

}  // namespace

at::ScalarType to_torch(Dtype dtype) {
  for (const auto& p : kPairs)
    if (p.ours == dtype) return p.torch;
  fail(ErrorCode::unsupported, "element type ", name(dtype), " has no PyTorch counterpart");
}

Dtype from_torch(at::ScalarType type) {
  for (const auto& p : kPairs)
    if (p.torch == type) return p.ours;
  fail(ErrorCode::unsupported, "element type ", c10::toString(type), " is not supported");
}

TensorView view_of(const at::Tensor& tensor) {
  TRIREME_CHECK(tensor.is_contiguous());
  TensorView view{tensor.data_ptr(), tensor.numel(), from_torch(tensor.scalar_type()), {}};
  if (tensor.is_cuda()) view.device = {Device::Kind::cuda, tensor.device().index()};
  return view;
}

at::Tensor tensor_over(const TensorView& view, at::IntArrayRef shape) {
  const bool cuda = view.device.kind == Device::Kind::cuda;
  const auto device =
      cuda ? at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(view.device.index)) : at::Device(at::kCPU);
  return at::from_blob(view.data, shape, at::TensorOptions(to_torch(view.dtype)).device(device));
}

void rethrow_as_error(const std::string& context) {
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const c10::OutOfMemoryError& e) {
    fail(ErrorCode::io, context, ": ", first_line(e));
  } catch (const c10::IndexError& e) {  // raised for values that the caller gave: token ids, labels
    fail(ErrorCode::input, context, ": ", first_line(e));
  } catch (const c10::Error& e) {
    fail(ErrorCode::internal, context, ": ", first_line(e));
  } catch (const std::exception& e) {
    fail(ErrorCode::internal, context, ": ", e.what());
  }
}

void translate_torch_errors(const std::string& context, const std::function<void()>& body) {
  try {
    body();
  } catch (...) {
    rethrow_as_error(context);
  }
}

}  // namespace trireme::tensor

#include "trireme/tensor/tensor_view.h"

#include <cstring>
#include <new>

#include "trireme/base/error.h"

namespace trireme::tensor {
namespace {
constexpr std::align_val_t kAlignment{64};
}

std::string to_text(Device device) {
  return device.kind == Device::Kind::cpu ? "cpu" : cat("cuda:", device.index);
}

void Buffer::Free::operator()(std::byte* p) const {
  ::operator delete(p, kAlignment);
}

Buffer::Buffer(int64_t size, spec::Dtype dtype) {
  TRIREME_CHECK(size >= 0);
  view_.size = size;
  view_.dtype = dtype;
  if (size == 0) return;
  const auto bytes = static_cast<size_t>(view_.bytes());
  memory_.reset(static_cast<std::byte*>(::operator new(bytes, kAlignment)));
  std::memset(memory_.get(), 0, bytes);
  view_.data = memory_.get();
}

}  // namespace trireme::tensor

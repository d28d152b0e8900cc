#pragma once
// Memory with a type and a place. A view does not own; a Buffer does.
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "trireme/spec/dtype.h"

namespace trireme::tensor {

struct Device {
  enum class Kind : uint8_t { cpu, cuda } kind = Kind::cpu;
  int index = 0;
  bool operator==(const Device&) const = default;
};
std::string to_text(Device device);  // "cpu", "cuda:0"

// Contiguous elements; the memory outlives the view.
struct TensorView {
  void* data = nullptr;
  int64_t size = 0;  // elements
  spec::Dtype dtype = spec::Dtype::f32;
  Device device;

  int64_t bytes() const { return size * static_cast<int64_t>(spec::size_of(dtype)); }
  TensorView slice(int64_t begin, int64_t count) const {
    return {static_cast<std::byte*>(data) + begin * static_cast<int64_t>(spec::size_of(dtype)), count, dtype,
            device};
  }
  template <typename T>
  std::span<T> as() const {
    return {static_cast<T*>(data), static_cast<size_t>(size)};
  }
  std::span<std::byte> raw() const { return {static_cast<std::byte*>(data), static_cast<size_t>(bytes())}; }
};

// Owned memory, 64-byte aligned, on the CPU. Pages are touched at creation, so that no page fault meets a
// timed step.
class Buffer {
 public:
  Buffer() = default;
  Buffer(int64_t size, spec::Dtype dtype);
  TensorView view() const { return view_; }

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Free> memory_;
  TensorView view_;
};

}  // namespace trireme::tensor

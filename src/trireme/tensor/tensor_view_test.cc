#include "trireme/tensor/tensor_view.h"

#include <gtest/gtest.h>

namespace trireme::tensor {
namespace {

TEST(Buffer, IsAlignedAndZero) {
  for (const int64_t size : {1, 3, 1000}) {
    const Buffer buffer(size, spec::Dtype::bf16);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.view().data) % 64, 0U);
    EXPECT_EQ(buffer.view().bytes(), 2 * size);
    for (const auto byte : buffer.view().raw()) EXPECT_EQ(byte, std::byte{0});
  }
}

TEST(Buffer, OfNoElementsHasNoMemory) {
  const Buffer buffer(0, spec::Dtype::f32);
  EXPECT_EQ(buffer.view().data, nullptr);
  EXPECT_TRUE(buffer.view().raw().empty());
}

TEST(Buffer, KeepsItsMemoryWhenMoved) {
  Buffer first(4, spec::Dtype::f32);
  const void* memory = first.view().data;
  const Buffer second = std::move(first);
  EXPECT_EQ(second.view().data, memory);
}

TEST(TensorView, SlicesCountElements) {
  const Buffer buffer(10, spec::Dtype::i64);
  const auto values = buffer.view().as<int64_t>();
  for (int64_t i = 0; i < 10; ++i) values[static_cast<size_t>(i)] = i;
  const auto slice = buffer.view().slice(3, 4);
  EXPECT_EQ(slice.size, 4);
  EXPECT_EQ(slice.as<int64_t>().front(), 3);
  EXPECT_EQ(slice.as<int64_t>().back(), 6);
}

TEST(Device, Prints) {
  EXPECT_EQ(to_text(Device{}), "cpu");
  EXPECT_EQ(to_text(Device{Device::Kind::cuda, 1}), "cuda:1");
}

}  // namespace
}  // namespace trireme::tensor

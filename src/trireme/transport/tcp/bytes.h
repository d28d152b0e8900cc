#pragma once
// Little-endian numbers in byte strings.
#include <concepts>
#include <cstddef>
#include <cstring>

namespace trireme::transport::tcp {

template <std::unsigned_integral T>
void put_number(std::byte* at, T value) {
  for (size_t i = 0; i < sizeof value; ++i) at[i] = static_cast<std::byte>(value >> (8 * i));
}

template <std::unsigned_integral T>
T get_number(const std::byte* at) {
  T value = 0;
  for (size_t i = 0; i < sizeof value; ++i)
    value |= static_cast<T>(T{static_cast<uint8_t>(at[i])} << (8 * i));
  return value;
}

}  // namespace trireme::transport::tcp

#include "trireme/serve/measure.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <future>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/rng.h"

namespace trireme::serve {
namespace {

using spec::Dtype;

template <typename T>
void put(std::vector<std::byte>& out, T value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), bytes, bytes + sizeof(T));
}

std::vector<std::byte> values(Dtype dtype, int64_t count, PhiloxStream& random) {
  std::vector<std::byte> out;
  for (int64_t i = 0; i < count; ++i) {
    const float real = uniform_float(random.next_u32());
    const auto bit = static_cast<uint64_t>(real * 2);
    if (dtype == Dtype::f32) {
      put(out, real);
    } else if (dtype == Dtype::f64) {
      put(out, static_cast<double>(real));
    } else if (dtype == Dtype::bf16) {
      uint32_t bits;
      std::memcpy(&bits, &real, sizeof bits);
      put(out, static_cast<uint16_t>(bits >> 16));
    } else if (dtype == Dtype::f16) {
      put(out, static_cast<uint16_t>(0x3800 | (bit << 9)));  // 0.5 or 0.75
    } else {                                                 // integers and booleans, little-endian
      const auto* bytes = reinterpret_cast<const std::byte*>(&bit);
      out.insert(out.end(), bytes, bytes + spec::size_of(dtype));
    }
  }
  return out;
}

template <typename T>
bool near_as(std::span<const std::byte> a, std::span<const std::byte> b) {
  // Sums in another order differ in the last digits; mixing rows differs far more.
  constexpr double kRelative = 1e-3, kAbsolute = 1e-4;
  for (size_t at = 0; at < a.size(); at += sizeof(T)) {
    T x, y;
    std::memcpy(&x, a.data() + at, sizeof x);
    std::memcpy(&y, b.data() + at, sizeof y);
    if (std::isnan(x) && std::isnan(y)) continue;
    if (!(std::abs(x - y) <= kAbsolute + kRelative * std::abs(x))) return x == y;
  }
  return true;
}

bool near(Dtype dtype, std::span<const std::byte> a, std::span<const std::byte> b) {
  if (a.size() != b.size()) return false;
  if (dtype == Dtype::f32) return near_as<float>(a, b);
  if (dtype == Dtype::f64) return near_as<double>(a, b);
  if (dtype == Dtype::f16 || dtype == Dtype::bf16) return true;  // too coarse to tell
  return std::ranges::equal(a, b);
}

double seconds_of(Backend& backend, const std::vector<RunInput>& inputs) {
  const auto begin = steady_clock().now();
  backend.run(inputs);
  return std::chrono::duration<double>(steady_clock().now() - begin).count();
}

}  // namespace

MadeInputs make_inputs(const ModelInfo& model, int64_t rows, uint64_t seed) {
  MadeInputs made;
  for (size_t i = 0; i < model.inputs.size(); ++i) {
    spec::Shape shape = model.inputs[i].example;
    if (model.joinable) shape[0] = rows;
    PhiloxStream random(seed, i);
    made.bytes.push_back(values(model.inputs[i].dtype, spec::count(shape), random));
    made.inputs.push_back({shape, {made.bytes.back()}});
  }
  return made;
}

bool rows_are_independent(Backend& backend) {
  const auto& info = backend.info();
  const MadeInputs both = make_inputs(info, 2, 1);
  const auto together = backend.run(both.inputs);
  for (size_t row = 0; row < 2; ++row) {
    auto one = both.inputs;
    for (auto& input : one) {
      const size_t bytes = input.pieces[0].size() / 2;
      input.shape[0] = 1;
      input.pieces[0] = input.pieces[0].subspan(row * bytes, bytes);
    }
    const auto alone = backend.run(one);
    for (size_t i = 0; i < alone.size(); ++i) {
      const size_t bytes = together[i].bytes.size() / 2;
      if (!near(alone[i].dtype, alone[i].bytes, together[i].bytes.subspan(row * bytes, bytes))) return false;
    }
  }
  return true;
}

std::vector<BatchTime> measure_times(Backend& backend, int64_t max_rows, double longest_s, double budget_s) {
  constexpr size_t kLeast = 3, kMost = 20;
  constexpr double kEnough_s = 0.2;  // of runs of one size
  std::vector<BatchTime> table;
  const auto end = steady_clock().now() + std::chrono::duration<double>(budget_s);
  for (int64_t rows = 1; rows <= max_rows;
       rows = rows < max_rows ? std::min(2 * rows, max_rows) : max_rows + 1) {
    const MadeInputs made = make_inputs(backend.info(), rows, static_cast<uint64_t>(rows));
    seconds_of(backend, made.inputs);
    std::vector<double> runs;
    for (double spent = 0; runs.size() < kLeast || (spent < kEnough_s && runs.size() < kMost);) {
      runs.push_back(seconds_of(backend, made.inputs));
      spent += runs.back();
    }
    std::ranges::nth_element(runs, runs.begin() + static_cast<std::ptrdiff_t>(runs.size() / 2));
    table.push_back({rows, runs[runs.size() / 2]});
    if (table.back().seconds > longest_s || steady_clock().now() > end) break;
  }
  return table;
}

std::vector<BatchTime> measure_together(const Instances& instances, int64_t max_rows, double longest_s,
                                        double budget_s) {
  std::vector<std::future<std::vector<BatchTime>>> tables;
  for (const auto& instance : instances)
    tables.push_back(std::async(std::launch::async, [&instance, max_rows, longest_s, budget_s] {
      instance->adopt_thread();
      return measure_times(*instance, max_rows, longest_s, budget_s);
    }));
  std::vector<BatchTime> slowest;
  for (auto& table : tables) {
    const auto mine = table.get();
    if (slowest.empty()) slowest = mine;
    slowest.resize(std::min(slowest.size(), mine.size()));
    for (size_t i = 0; i < slowest.size(); ++i)
      slowest[i].seconds = std::max(slowest[i].seconds, mine[i].seconds);
  }
  return slowest;
}

}  // namespace trireme::serve

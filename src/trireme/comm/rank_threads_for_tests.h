#pragma once
// Tests: ranks as threads over loopback, each with its engine and a group of all.
#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "trireme/base/rng.h"
#include "trireme/comm/group.h"

namespace trireme::comm {

struct RankWorld {
  transport::LoopbackOptions loopback;
  uint64_t queue_seed = 0;  // 0: the real queue
  EngineOptions engine;
  bool end_together = true;  // a last barrier; without it a rank may leave while others still talk to it
};

// Runs `body` on every rank; rethrows the first rank's exception after all have ended.
inline void run_ranks(int size, const RankWorld& world, const std::function<void(Group&, Engine&)>& body) {
  auto transports = transport::make_loopback(size, world.loopback);
  std::vector<std::exception_ptr> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r, transport = std::move(transports[static_cast<size_t>(r)])]() mutable {
      try {
        const auto queue = world.queue_seed == 0
                               ? make_cpu_queue()
                               : make_fake_queue(world.queue_seed + static_cast<uint64_t>(r));
        Engine engine(*transport, *queue, world.engine);
        Group group(engine);
        body(group, engine);
        if (world.end_together) group.barrier();
      } catch (...) {
        errors[static_cast<size_t>(r)] = std::current_exception();
      }
      transport.reset();
    });
  }
  for (auto& t : threads) t.join();
  for (const auto& e : errors) {
    if (e) std::rethrow_exception(e);
  }
}

// What `body` threw on every rank, "" for none; an Error of another code fails the test. Transports last
// until all have ended, so that who fails first does not look lost to the others.
inline std::vector<std::string> errors_of_ranks(int size, ErrorCode code,
                                                const std::function<void(Group&)>& body) {
  auto transports = transport::make_loopback(size);
  std::vector<std::string> errors(transports.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < errors.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const auto queue = make_cpu_queue();
        Engine engine(*transports[rank], *queue, {.timeout = Seconds{20}});
        Group group(engine);
        body(group);
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), code) << e.what();
        errors[rank] = e.what();
      }
    });
  }
  for (auto& t : threads) t.join();
  return errors;
}

inline std::vector<float> random_values(size_t count, uint64_t seed) {
  PhiloxStream rng(seed, 0);
  std::vector<float> values(count);
  for (auto& v : values) v = static_cast<float>(rng.next_double() * 4 - 2);
  return values;
}

inline tensor::TensorView view_of(std::vector<float>& values) {
  return {values.data(), static_cast<int64_t>(values.size()), spec::Dtype::f32, {}};
}

template <typename T>
std::span<std::byte> bytes_of(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

}  // namespace trireme::comm

#include "trireme/stats/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace trireme::stats {
namespace {

constexpr size_t kMostThreads = 256;  // more are refused by some systems and of use on none

}  // namespace

void parallel_for(size_t count, unsigned threads, const std::function<void(size_t)>& body) {
  if (threads == 0) threads = std::max(1u, std::thread::hardware_concurrency());
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::exception_ptr first_error;
  const auto work = [&] {
    try {
      for (size_t i = next++; i < count; i = next++) body(i);
    } catch (...) {
      next = count;
      const std::lock_guard lock(mutex);
      if (!first_error) first_error = std::current_exception();
    }
  };
  std::vector<std::thread> helpers;
  for (size_t t = 1; t < std::min({size_t{threads}, count, kMostThreads}); ++t) helpers.emplace_back(work);
  work();
  for (auto& helper : helpers) helper.join();
  if (first_error) std::rethrow_exception(first_error);
}

}  // namespace trireme::stats

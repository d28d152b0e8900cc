#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "trireme/base/rng.h"
#include "trireme/comm/engine.h"

namespace trireme::comm {
namespace {

class CpuQueue : public ComputeQueue {
 public:
  explicit CpuQueue(int threads) {
    TRIREME_CHECK(threads >= 1, threads, " threads");
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  }
  ~CpuQueue() override {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    for (auto& t : threads_) t.join();
  }

  void submit(int priority, std::function<void()> job) override {
    {
      std::lock_guard lock(mutex_);
      jobs_.emplace(priority, std::move(job));  // equal keys stay in order of insertion
    }
    changed_.notify_one();
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      auto job = std::move(jobs_.begin()->second);
      jobs_.erase(jobs_.begin());
      lock.unlock();
      job();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::multimap<int, std::function<void()>> jobs_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

// Any waiting job may be next, after a pause of random length in which more may come.
class FakeQueue : public ComputeQueue {
 public:
  explicit FakeQueue(uint64_t seed) : rng_(seed, 0), thread_([this] { work(); }) {}
  ~FakeQueue() override {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void submit(int, std::function<void()> job) override {
    {
      std::lock_guard lock(mutex_);
      jobs_.push_back(std::move(job));
    }
    changed_.notify_one();
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      const uint32_t pause = rng_.next_u32() % 4;
      lock.unlock();
      for (uint32_t i = 0; i < pause; ++i) std::this_thread::yield();
      lock.lock();
      std::swap(jobs_[rng_.next_u32() % jobs_.size()], jobs_.back());
      auto job = std::move(jobs_.back());
      jobs_.pop_back();
      lock.unlock();
      job();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::function<void()>> jobs_;
  PhiloxStream rng_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<ComputeQueue> make_cpu_queue(int threads) {
  return std::make_unique<CpuQueue>(threads);
}
std::unique_ptr<ComputeQueue> make_fake_queue(uint64_t seed) {
  return std::make_unique<FakeQueue>(seed);
}

}  // namespace trireme::comm

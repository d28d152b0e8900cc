#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>

#include "trireme/transport/transport.h"

namespace trireme::transport {
namespace {

class MemoryStore : public Store {
 public:
  void set(const std::string& key, const std::string& value) override {
    {
      std::lock_guard lock(mutex_);
      values_[key] = value;
    }
    changed_.notify_all();
  }

  Result<std::string> get(const std::string& key, Seconds timeout) override {
    std::unique_lock lock(mutex_);
    const bool found = changed_.wait_for(lock, std::chrono::duration<double>(timeout.value),
                                         [&] { return values_.contains(key); });
    if (found) return values_[key];
    return Failure{ErrorCode::timeout, cat("no rank set '", key, "' within ", for_people(timeout))};
  }

  int64_t add(const std::string& key, int64_t amount) override {
    std::lock_guard lock(mutex_);
    std::string& value = values_[key];
    const int64_t sum = (value.empty() ? 0 : std::stoll(value)) + amount;
    value = std::to_string(sum);
    changed_.notify_all();
    return sum;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

}  // namespace

std::shared_ptr<Store> make_memory_store() {
  return std::make_shared<MemoryStore>();
}

}  // namespace trireme::transport

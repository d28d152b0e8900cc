#pragma once
// A model without torch: y = 2 x over rows of one float each, or of a variable number of them. It can be held
// back.
#include <condition_variable>
#include <cstring>
#include <mutex>

#include "trireme/base/error.h"
#include "trireme/serve/backend.h"

namespace trireme::serve {

// Holds runs back, and says when one has begun.
class Gate {
 public:
  void close() {
    const std::lock_guard lock(mutex_);
    open_ = false;
  }
  void open() {
    {
      const std::lock_guard lock(mutex_);
      open_ = true;
    }
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    ++inside_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
    --inside_;
  }
  void wait_inside(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return inside_ >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true;
  int inside_ = 0;
};

struct FakeState {
  Gate gate;
  std::mutex mutex;
  std::vector<int64_t> batches;  // rows of each run
};

class FakeBackend : public Backend {
 public:
  explicit FakeBackend(std::shared_ptr<FakeState> state, std::string name = "double",
                       std::string version = "1")
      : state_(std::move(state)) {
    info_.name = std::move(name);
    info_.version = std::move(version);
    info_.platform = "fake";
    info_.inputs = {{"x", spec::Dtype::f32, {-1, -1}, {1, 1}}};
    info_.outputs = {{"y", spec::Dtype::f32, {-1, -1}, {}}};
    info_.joinable = true;
    info_.max_rows = 1 << 20;
  }
  const ModelInfo& info() const override { return info_; }

  // A value of 13 is refused, -13 breaks the model.
  std::vector<Tensor> run(const std::vector<RunInput>& inputs) override {
    state_->gate.pass();
    auto values = std::make_shared<std::vector<float>>();
    for (const auto piece : inputs[0].pieces) {
      const size_t before = values->size();
      values->resize(before + piece.size() / sizeof(float));
      if (!piece.empty()) std::memcpy(values->data() + before, piece.data(), piece.size());
    }
    {
      const std::lock_guard lock(state_->mutex);
      state_->batches.push_back(inputs[0].shape[0]);
    }
    for (float& v : *values) {
      if (v == 13) fail(ErrorCode::input, "13 is not a value");
      if (v == -13) fail(ErrorCode::internal, "it broke");
      v *= 2;
    }
    return {{"y", spec::Dtype::f32, inputs[0].shape, std::as_bytes(std::span(*values)), values}};
  }

 private:
  ModelInfo info_;
  std::shared_ptr<FakeState> state_;
};

}  // namespace trireme::serve

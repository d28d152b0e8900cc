#include "trireme/train/checkpoint_writer_torch.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

namespace trireme::train {
namespace {

namespace fs = std::filesystem;
using Tensors = std::map<std::string, at::Tensor>;

// A process that ends because another one is lost is given 15 s.
constexpr auto kPatience = std::chrono::seconds(10);

bool fits(const at::Tensor& copy, const at::Tensor& tensor) {
  return copy.defined() && copy.sizes() == tensor.sizes() && copy.scalar_type() == tensor.scalar_type();
}

// Fresh memory is dear, so copies that fit are written over.
void copy_over(Tensors& copies, const Tensors& tensors) {
  std::erase_if(copies, [&](const auto& copy) { return !tensors.contains(copy.first); });
  for (const auto& [name, tensor] : tensors) {
    at::Tensor& copy = copies[name];
    if (!fits(copy, tensor)) {
      copy = at::empty_like(tensor, at::TensorOptions().device(at::kCPU), at::MemoryFormat::Contiguous);
    }
    copy.copy_(tensor.detach());
  }
}

}  // namespace

struct CheckpointWriter::State {
  fs::path checkpoints;
  int64_t keep_last = 0;
  std::mutex mutex;
  std::condition_variable changed;
  Checkpoint copy;  // the thread's own while `writing`
  bool writing = false, ends = false;
  std::exception_ptr error;

  void write_all() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return writing || ends; });
      if (!writing) return;
      lock.unlock();
      std::exception_ptr met;
      try {
        save_checkpoint(checkpoints, copy, keep_last);
      } catch (...) {
        met = std::current_exception();
      }
      lock.lock();
      writing = false;
      error = met;
      changed.notify_all();
    }
  }
};

CheckpointWriter::CheckpointWriter(fs::path checkpoints, int64_t keep_last)
    : state_(std::make_shared<State>()) {
  state_->checkpoints = std::move(checkpoints);
  state_->keep_last = keep_last;
  thread_ = std::thread([state = state_] { state->write_all(); });
}

CheckpointWriter::~CheckpointWriter() {
  std::unique_lock lock(state_->mutex);
  state_->ends = true;
  state_->changed.notify_all();
  const bool done = state_->changed.wait_for(lock, kPatience, [this] { return !state_->writing; });
  lock.unlock();
  done ? thread_.join() : thread_.detach();
}

void CheckpointWriter::start(const Checkpoint& checkpoint) {
  finish();
  const at::NoGradGuard no_grad;
  Checkpoint& copy = state_->copy;
  Tensors model = std::move(copy.model), optimizer = std::move(copy.optimizer);
  copy_over(model, checkpoint.model);
  copy_over(optimizer, checkpoint.optimizer);
  copy = checkpoint;
  copy.model = std::move(model);
  copy.optimizer = std::move(optimizer);
  const std::lock_guard lock(state_->mutex);
  state_->writing = true;
  state_->changed.notify_all();
}

void CheckpointWriter::finish() {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [this] { return !state_->writing; });
  if (auto error = std::exchange(state_->error, nullptr)) std::rethrow_exception(error);
}

void CheckpointWriter::check() {
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->writing) return;
  }
  finish();
}

}  // namespace trireme::train

#include "trireme/train/data_parallel/replicas_torch.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/view_as_real.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/base/rng.h"
#include "trireme/tensor/adaptor_torch.h"

namespace trireme::train {
namespace {

constexpr size_t kBroadcastBytes = 32
                                   << 20;  // per message: small tensors share one, and the copy stays bounded

at::Tensor on_host(const at::Tensor& t) {
  return t.detach().to(at::kCPU).contiguous();
}

// Sends tensors [begin, end) as one message through `buffer`.
void broadcast_packed(comm::Group& group, std::span<const at::Tensor> tensors, std::vector<std::byte>& buffer,
                      int root) {
  size_t bytes = 0;
  for (const at::Tensor& t : tensors) bytes += t.nbytes();
  if (bytes == 0) return;
  buffer.resize(bytes);
  std::byte* place = buffer.data();
  if (group.rank() == root) {
    for (const at::Tensor& t : tensors) {
      const at::Tensor host = on_host(t);
      if (t.nbytes() > 0) std::memcpy(place, host.const_data_ptr(), t.nbytes());
      place += t.nbytes();
    }
  }
  group.broadcast(buffer, root);
  if (group.rank() == root) return;
  for (const at::Tensor& t : tensors) {
    const at::Tensor host = at::empty(t.sizes(), t.options().device(at::kCPU));
    if (t.nbytes() > 0) std::memcpy(host.mutable_data_ptr(), place, t.nbytes());
    t.copy_(host);
    place += t.nbytes();
  }
}

// Sums of squares over blocks of this many elements are added in order; see global_norm.
constexpr int64_t kBlock = 1 << 15;

template <typename T>
double sum_of_squares(const T* values, int64_t count) {
  const int64_t blocks = (count + kBlock - 1) / kBlock;
  std::vector<double> sums(static_cast<size_t>(blocks));
  at::parallel_for(0, blocks, 4, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      double sum = 0;
      for (int64_t i = b * kBlock; i < std::min(count, (b + 1) * kBlock); ++i) {
        sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
      }
      sums[static_cast<size_t>(b)] = sum;
    }
  });
  double total = 0;
  for (const double s : sums) total += s;
  return total;
}

}  // namespace

void broadcast_tensors(comm::Group& group, const std::vector<at::Tensor>& tensors, int root) {
  if (group.size() == 1) return;
  const at::NoGradGuard no_grad;
  std::vector<std::byte> buffer;
  const std::span<const at::Tensor> all(tensors);
  for (size_t begin = 0; begin < all.size();) {
    size_t end = begin, bytes = 0;
    while (end < all.size() && (end == begin || bytes + all[end].nbytes() <= kBroadcastBytes))
      bytes += all[end++].nbytes();
    broadcast_packed(group, all.subspan(begin, end - begin), buffer, root);
    begin = end;
  }
}

uint64_t content_hash(const at::Tensor& tensor) {
  const at::Tensor host = on_host(tensor);
  const auto* bytes = static_cast<const std::byte*>(host.const_data_ptr());
  const size_t size = host.nbytes();
  // Four independent lanes of multiply and rotate keep up with memory; mix() joins them well.
  std::array<uint64_t, 4> lanes{1, 2, 3, 4};
  size_t at = 0;
  for (; at + sizeof(lanes) <= size; at += sizeof(lanes)) {
    std::array<uint64_t, 4> words;
    std::memcpy(words.data(), bytes + at, sizeof(words));
    for (size_t l = 0; l < 4; ++l) lanes[l] = std::rotl((lanes[l] ^ words[l]) * 0x9E3779B97F4A7C15ULL, 29);
  }
  uint64_t hash = mix(lanes[0], lanes[1], lanes[2]) ^ mix(lanes[3], size);
  for (; at < size; ++at) hash = mix(hash, static_cast<uint64_t>(bytes[at]));
  return hash;
}

void check_replicas(comm::Group& group, const std::vector<NamedParameter>& parameters, int64_t step) {
  if (parameters.empty()) return;
  std::vector<uint64_t> mine;
  for (const auto& p : parameters) mine.push_back(content_hash(p.tensor));
  std::vector<uint64_t> all(mine.size() * static_cast<size_t>(group.size()));
  group.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
  for (size_t i = 0; i < mine.size(); ++i) {
    for (size_t rank = 1; rank < static_cast<size_t>(group.size()); ++rank) {
      if (all[rank * mine.size() + i] == all[i]) continue;
      fail(ErrorCode::diverged, "replicas differ after step ", step, ": parameter ", parameters[i].name,
           " of rank ", rank, " is not that of rank 0");
    }
  }
}

double global_norm(const std::vector<at::Tensor>& gradients) {
  double total = 0;
  for (const at::Tensor& g : gradients) {
    if (!g.defined() || g.numel() == 0) continue;
    at::Tensor host = g.detach().to(at::kCPU);
    if (host.is_complex()) host = at::view_as_real(host);
    // Dense memory is walked as it lies: the sum does not depend on the layout's order, which all ranks
    // share.
    if (!host.is_non_overlapping_and_dense()) host = host.contiguous();
    if (host.scalar_type() == at::kDouble) {
      total += sum_of_squares(host.const_data_ptr<double>(), host.numel());
    } else {
      host = host.to(at::kFloat);
      total += sum_of_squares(host.const_data_ptr<float>(), host.numel());
    }
  }
  return std::sqrt(total);
}

}  // namespace trireme::train

#include "trireme/train/data/order.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/rng.h"

namespace trireme::train {
namespace {

constexpr uint64_t kDataStream = 0x64617461;  // "data": keeps the order apart from other uses of the seed

}  // namespace

std::vector<int64_t> samples_at(const Order& order, int64_t position, int64_t count, int64_t global_batch) {
  TRIREME_CHECK(position >= 0 && count >= 0 && global_batch > 0);
  if (order.samples < global_batch)
    fail(ErrorCode::input, "data: ", order.samples, " training samples are fewer than one global batch of ",
         global_batch, ": lower train.batch_per_rank, or give more data");
  const int64_t epoch_size = order.samples / global_batch * global_batch;
  std::vector<int64_t> ids;
  ids.reserve(static_cast<size_t>(count));
  while (count > 0) {
    const int64_t epoch = position / epoch_size, begin = position % epoch_size;
    const int64_t end = std::min(begin + count, epoch_size);
    const Permutation shuffled(static_cast<uint64_t>(order.samples),
                               mix(order.seed, static_cast<uint64_t>(epoch), kDataStream));
    for (int64_t i = begin; i < end; ++i)
      ids.push_back(order.shuffle ? static_cast<int64_t>(shuffled(static_cast<uint64_t>(i))) : i);
    position += end - begin;
    count -= end - begin;
  }
  return ids;
}

std::vector<int64_t> rank_samples(const Order& order, int64_t position, int64_t global_batch, int rank,
                                  int world) {
  TRIREME_CHECK(world > 0 && rank >= 0 && rank < world && global_batch % world == 0);
  const int64_t slice = global_batch / world;
  return samples_at(order, position + rank * slice, slice, global_batch);
}

}  // namespace trireme::train

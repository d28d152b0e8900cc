#pragma once
// Which samples a rank sees. A pure function of (seed, epoch, position): resume at any world size continues
// it exactly.
#include <cstdint>
#include <vector>

namespace trireme::train {

struct Order {
  int64_t samples = 0;  // in the training share
  bool shuffle = true;
  uint64_t seed = 0;
};

// Sample ids of positions [position, position + count) of the endless sequence of epochs, where each epoch
// drops its last partial global batch of `global_batch`. `position` counts global samples consumed since the
// start of training. Error(input) when samples < global_batch.
std::vector<int64_t> samples_at(const Order& order, int64_t position, int64_t count, int64_t global_batch);

// The r-th slice of the global batch that starts at `position`.
std::vector<int64_t> rank_samples(const Order& order, int64_t position, int64_t global_batch, int rank,
                                  int world);

}  // namespace trireme::train

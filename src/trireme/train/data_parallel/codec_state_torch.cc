#include "trireme/train/data_parallel/codec_state_torch.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <exception>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/tensor/adaptor_torch.h"
#include "trireme/train/data_parallel/agreement.h"

namespace trireme::train {
namespace {

using Tensors = std::map<std::string, at::Tensor>;

std::string key_of(int rank, const std::string& name) {
  return cat("rank", rank, "/", name);
}

// The saved tensor for `name` on `rank`; undefined where there is none.
at::Tensor saved_for(const Tensors& saved, int saved_ranks, const std::string& name, int rank, int ranks) {
  if (saved_ranks == ranks) {
    const auto found = saved.find(key_of(rank, name));
    return found == saved.end() ? at::Tensor() : found->second;
  }
  at::Tensor sum;
  for (int old = 0; old < saved_ranks; ++old) {
    const auto found = saved.find(key_of(old, name));
    if (found == saved.end()) return {};
    sum = sum.defined() ? sum.add(found->second) : found->second;
  }
  return sum.defined() ? sum.div(static_cast<double>(saved_ranks)) : sum;
}

// Of one rank, in the order of names: what it gets, checked. `missing` counts what starts from zero.
Tensors state_for(const Tensors& like, const Tensors& saved, int saved_ranks, int rank, int ranks,
                  size_t& missing) {
  Tensors state;
  for (const auto& [name, mine] : like) {
    at::Tensor found = saved_for(saved, saved_ranks, name, rank, ranks);
    if (found.defined() && found.numel() != mine.numel()) {
      fail(ErrorCode::input, "codec state ", name, " has ", found.numel(), " elements in the checkpoint, ",
           mine.numel(), " here: its codec had other options");
    }
    missing += found.defined() ? 0 : 1;
    state[name] = found.defined() ? found.to(at::kFloat).contiguous() : at::zeros({mine.numel()}, at::kFloat);
  }
  return state;
}

}  // namespace

Tensors gather_codec_state(comm::Group& group, const GradientSync& sync) {
  const Tensors mine = sync.codec_state();
  Tensors all;
  for (int rank = 0; rank < group.size(); ++rank) {
    for (const auto& [name, tensor] : mine) {
      const auto view = tensor::view_of(tensor);
      if (rank == 0 && group.rank() == 0) {
        all[key_of(0, name)] = tensor;
      } else if (group.rank() == 0) {
        at::Tensor other = at::empty({tensor.numel()}, at::kFloat);
        group.receive(rank, tensor::view_of(other).raw());
        all[key_of(rank, name)] = std::move(other);
      } else if (group.rank() == rank) {
        group.send(0, view.raw());
      }
    }
  }
  return all;
}

void scatter_codec_state(comm::Group& group, GradientSync& sync, const Tensors& saved, int saved_ranks) {
  Tensors mine = sync.codec_state();
  std::vector<Tensors> by_rank;
  size_t missing = 0, all = mine.size() * static_cast<size_t>(group.size());
  std::exception_ptr error;
  if (group.rank() == 0) {
    try {
      for (int rank = 0; rank < group.size(); ++rank)
        by_rank.push_back(state_for(mine, saved, saved_ranks, rank, group.size(), missing));
    } catch (...) {
      error = std::current_exception();  // the others have to hear of it
    }
  }
  const auto failed = gather(group, uint64_t{error != nullptr});
  if (error) std::rethrow_exception(error);
  if (failed[0] != 0) fail(ErrorCode::input, "rank 0 cannot use the checkpoint's codec state");
  for (auto& [name, tensor] : mine) {
    for (int rank = 1; rank < group.size(); ++rank) {
      if (group.rank() == 0)
        group.send(rank, tensor::view_of(by_rank[static_cast<size_t>(rank)].at(name)).raw());
      if (group.rank() == rank) group.receive(0, tensor::view_of(tensor).raw());
    }
    if (group.rank() == 0) tensor = by_rank[0].at(name);
  }
  sync.load_codec_state(mine);
  if (group.rank() != 0 || all == 0) return;
  if (missing > 0)
    log::warning("the checkpoint lacks the codec's state, or part of it: what was still to be sent is lost");
  else if (saved_ranks != group.size())
    log::info(
        cat("codec state of ", saved_ranks, " ranks: each of ", group.size(), " starts with their mean"));
}

}  // namespace trireme::train

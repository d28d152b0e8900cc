#pragma once
// What codecs remember (residuals, velocities, factors) between the ranks and a checkpoint. Each rank has its
// own.
#include <map>
#include <string>

#include "trireme/train/data_parallel/gradient_sync_torch.h"

namespace trireme::train {

// On rank 0 the state of all ranks, "rank2/fc1.weight.residual"; on others nothing. All ranks call it.
std::map<std::string, at::Tensor> gather_codec_state(comm::Group& group, const GradientSync& sync);

// The reverse: `saved`, of `saved_ranks` ranks, counts on rank 0. For another number of ranks every rank gets
// the mean of the old ones, so that the mean over ranks of what is still to be sent stays the same. What
// `saved` does not have (another codec) starts from zero, and a warning says so. Error(input) for another
// shape.
void scatter_codec_state(comm::Group& group, GradientSync& sync,
                         const std::map<std::string, at::Tensor>& saved, int saved_ranks);

}  // namespace trireme::train

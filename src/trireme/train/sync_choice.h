#pragma once
// What [sync], and the parts of [optim] and [precision] that it touches, come to: a pure function of the
// configuration.
#include <string>
#include <vector>

#include "trireme/codec/codec.h"
#include "trireme/comm/task_graph.h"
#include "trireme/train/options.h"

namespace trireme::train {

struct SyncChoice {
  std::string codec_name;  // "none", "bf16", …
  codec::CodecPtr codec;   // null: float32
  comm::Strategy strategy = comm::Strategy::ring;
  OptimOptions optim;              // as the optimizer shall be made: dgc takes sgd's momentum over
  std::vector<std::string> notes;  // for the log
};
// Error(usage) naming the key: an unknown codec or option, feedback that would diverge, a strategy that the
// codec's payloads do not fit.
SyncChoice choose_sync(const Config& config, const codec::CodecSet& codecs);

// "ring", "two_phase", …
const char* name(comm::Strategy strategy);

}  // namespace trireme::train

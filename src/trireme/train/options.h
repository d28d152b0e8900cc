#pragma once
// The training configuration: every key of CONFIG.toml, listed once (see base/options.h).
// `trireme train --help-config` prints the list.
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/options.h"
#include "trireme/codec/codec.h"
#include "trireme/transport/transport.h"

namespace trireme::train {

struct ModelOptions {
  std::string graph;
  std::string weights;
  std::vector<std::string> freeze;
  void list(OptionList& o);
};

struct DataOptions {
  std::string kind = "bytes";  // bytes | idx | safetensors | tokens
  std::string path, images, labels;
  int64_t context = 128;
  std::string dtype = "uint16";  // tokens: uint16 | uint32
  bool shuffle = true;
  std::string eval_path, eval_images, eval_labels;
  double eval_share = 0;
  void list(OptionList& o);
};

struct OptimGroup {
  std::string match;
  std::optional<double> lr, weight_decay;
  void list(OptionList& o);
};

struct OptimOptions {
  std::string kind = "sgd";  // sgd | adam | adamw
  double lr = 1e-3;          // required by torch for sgd (no default there before 2.x): 1e-3 as today
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;
  std::vector<double> betas{0.9, 0.999};
  double eps = 1e-8;
  std::optional<double> weight_decay;  // torch's default: 0, adamw 0.01
  std::vector<std::string> no_decay;
  std::string schedule = "constant";  // constant | linear | cosine
  int64_t warmup = 0;                 // steps
  double final_lr_share = 0;          // linear, cosine: lr at the last step, as a share of lr
  std::vector<OptimGroup> groups;     // [[optim.group]]: the first match wins
  void list(OptionList& o);
};

struct TrainOptions {
  int64_t steps = 100;
  int64_t batch_per_rank = 8;
  int64_t seed = 0;
  int64_t accumulate = 1;
  double clip_norm = 0;  // 0: off
  int64_t eval_every = 0;
  int64_t checkpoint_every = 0;  // 0: only at the end
  int64_t keep_last = 3;
  std::string device = "auto";  // cpu | cuda | auto
  bool check_replicas = false;
  int64_t threads = 0;  // intra-op threads per rank; 0: cores / local ranks
  void list(OptionList& o);
};

struct SyncOptions {
  std::string strategy = "auto";  // auto | ring | two_phase | gather | off (more as they are built)
  std::string codec = "none";
  OptionTable codec_options;
  std::string error_feedback = "auto";  // auto | true | false
  Bytes min_bytes;
  Bytes bucket_bytes{5'000'000};
  Bytes first_bucket_bytes{1'000'000};
  void list(OptionList& o);
};

struct ShardOptions {
  std::string strategy = "none";  // every rank holds the whole model
  void list(OptionList& o);
};

struct PrecisionOptions {
  std::string param = "fp32";   // fp32
  std::string output = "fp32";  // fp32
  std::string reduce = "fp32";  // fp32 | bf16: element type on the wire; sums are float32
  void list(OptionList& o);
};

struct Config {
  ModelOptions model;
  DataOptions data;
  OptimOptions optim;
  TrainOptions train;
  SyncOptions sync;
  ShardOptions shard;
  PrecisionOptions precision;
  transport::TransportOptions transport;
  void list(OptionList& o);
  // Cross-field checks; Error(usage) naming the key. Keys of parts that are not built are refused by the
  // option list itself. The codec names are those of the program's set.
  void check(const codec::CodecSet& codecs) const;
  // Keys that were changed but mean nothing with the others or on so many ranks, one sentence each.
  std::vector<std::string> without_effect(int world) const;
};

}  // namespace trireme::train

#include "trireme/train/options.h"

#include <cmath>
#include <regex>

#include "trireme/base/error.h"
#include "trireme/train/sync_choice.h"

namespace trireme::train {

void ModelOptions::list(OptionList& o) {
  o.add("graph", graph,
        "training graph (.pt2 of torch.export); its first float scalar output is the loss; required");
  o.add("weights", weights,
        "safetensors file or checkpoints/step_N folder to start from; empty: the graph's own weights");
  o.add("freeze", freeze, "regular expressions over parameter names that are not trained");
}

void DataOptions::list(OptionList& o) {
  o.add("kind", kind, "what the files hold").one_of({"bytes", "idx", "safetensors", "tokens"});
  o.add("path", path, "bytes (.gz is read directly), safetensors, tokens: the training file");
  o.add("images", images, "idx: file of images (.gz is read directly)");
  o.add("labels", labels, "idx: file of labels (.gz is read directly)");
  o.add("context", context, "bytes, tokens: window length in tokens").at_least(1);
  o.add("dtype", dtype, "tokens: type of one id in the file").one_of({"uint16", "uint32"});
  o.add("shuffle", shuffle, "a new order every epoch, from train.seed; false: file order");
  o.add("eval_path", eval_path, "bytes, safetensors, tokens: file to evaluate on; empty: see eval_share");
  o.add("eval_images", eval_images, "idx: images to evaluate on");
  o.add("eval_labels", eval_labels, "idx: labels to evaluate on");
  o.add("eval_share", eval_share, "share of the samples, from the end, held out for evaluation")
      .at_least(0)
      .at_most(0.9);
}

void OptimGroup::list(OptionList& o) {
  o.add("match", match, "regular expression over parameter names; required");
  o.add("lr", lr, "learning rate of these parameters; not set: optim.lr").at_least(0);
  o.add("weight_decay", weight_decay, "weight decay of these parameters; not set: optim.weight_decay")
      .at_least(0);
}

void OptimOptions::list(OptionList& o) {
  o.add("kind", kind, "update rule, with torch.optim's arithmetic").one_of({"sgd", "adam", "adamw"});
  o.add("lr", lr, "learning rate").at_least(0);
  o.add("momentum", momentum, "sgd").at_least(0);
  o.add("dampening", dampening, "sgd").at_least(0);
  o.add("nesterov", nesterov, "sgd: needs momentum above 0 and dampening 0");
  o.add("betas", betas, "adam, adamw: decay of the two averages, each below 1").at_least(0);
  o.add("eps", eps, "adam, adamw").at_least(0);
  o.add("weight_decay", weight_decay, "not set: 0, adamw 0.01").at_least(0);
  o.add("no_decay", no_decay, "regular expressions over parameter names without weight decay");
  o.add("schedule", schedule, "course of the learning rate after warm-up")
      .one_of({"constant", "linear", "cosine"});
  o.add("warmup", warmup, "steps over which the learning rate rises linearly to lr").at_least(0);
  o.add("final_lr_share", final_lr_share, "linear, cosine: learning rate at the last step as a share of lr")
      .at_least(0)
      .at_most(1);
  o.rows("group", groups, "own settings for some parameters; the first match wins");
}

void TrainOptions::list(OptionList& o) {
  o.add("steps", steps, "optimizer steps, counted from the start of training, also after --resume")
      .at_least(1);
  o.add("batch_per_rank", batch_per_rank, "samples per rank and micro-batch").at_least(1).at_most(1 << 30);
  o.add("seed", seed, "of data order and dropout").at_least(0);
  o.add("accumulate", accumulate, "micro-batches per step; only the last one's gradients travel")
      .at_least(1)
      .at_most(1 << 20);
  o.add("clip_norm", clip_norm, "largest global gradient norm; 0: no clipping").at_least(0);
  o.add("eval_every", eval_every, "steps between evaluations; 0: only at the end").at_least(0);
  o.add("checkpoint_every", checkpoint_every, "steps between checkpoints; 0: only at the end").at_least(0);
  o.add("keep_last", keep_last, "checkpoints kept").at_least(1);
  o.add("device", device, "where to compute").one_of({"auto", "cpu", "cuda"});
  o.add("check_replicas", check_replicas,
        "compare all ranks' weights by hash after every step, stop on a difference");
  o.add("threads", threads, "compute threads per rank; 0: cores / ranks on this machine")
      .at_least(0)
      .at_most(4096)
      .local();
}

void SyncOptions::list(OptionList& o) {
  o.add("strategy", strategy, "how gradients are joined; off exchanges nothing (benches: the compute floor)")
      .one_of({"auto", "ring", "two_phase", "gather", "off"});
  o.add(
      "codec", codec,
      "what gradients become on the wire: none (as precision.reduce says), or a name of trireme codec list");
  o.add("codec_options", codec_options, "options of the codec, as an inline table");
  o.add("error_feedback", error_feedback,
        "add what the codec lost to the next gradient; auto: where the codec needs it")
      .one_of({"auto", "true", "false"});
  o.add("min_bytes", min_bytes, "groups of gradients (bucket_bytes) smaller than this travel without codec");
  o.add("bucket_bytes", bucket_bytes,
        "small gradients are sent in groups of about this size, large ones alone")
      .at_least(1);
  o.add("first_bucket_bytes", first_bucket_bytes,
        "size of the first and last group: small, so that sending starts and ends early")
      .at_least(1);
}

void ShardOptions::list(OptionList& o) {
  o.add("strategy", strategy, "what ranks divide between them; none: every rank holds the whole model")
      .one_of({"none"});
}

void PrecisionOptions::list(OptionList& o) {
  o.add("param", param, "type of parameters while computing").one_of({"fp32"});
  o.add("reduce", reduce, "type of gradients on the wire; sums are always fp32").one_of({"fp32", "bf16"});
  o.add("output", output, "type of the graph's outputs").one_of({"fp32"});
}

void Config::list(OptionList& o) {
  o.section("model", "what is trained; relative paths here and below start at the working directory",
            [&](OptionList& s) { model.list(s); });
  o.section("data", "samples, in the order of the graph's user inputs", [&](OptionList& s) { data.list(s); });
  o.section("optim", "update rule; defaults are those of torch.optim", [&](OptionList& s) { optim.list(s); });
  o.section("train", "length, batch, checkpoints", [&](OptionList& s) { train.list(s); });
  o.section("sync", "gradient synchronisation between ranks", [&](OptionList& s) { sync.list(s); });
  o.section("shard", "parameters divided between ranks", [&](OptionList& s) { shard.list(s); });
  o.section("precision", "element types", [&](OptionList& s) { precision.list(s); });
  o.section("transport", "how ranks reach each other", [&](OptionList& s) { transport.list(s); });
}

namespace {

void check_patterns(const std::string& key, const std::vector<std::string>& patterns) {
  for (const auto& pattern : patterns) {
    try {
      const std::regex compiled(pattern);
    } catch (const std::regex_error& error) {
      fail(ErrorCode::usage, key, ": '", pattern, "' is not a regular expression: ", error.what());
    }
  }
}

void check_data(const DataOptions& d) {
  if (d.kind == "idx") {
    for (const auto& [key, value] :
         {std::pair{"data.images", &d.images}, std::pair{"data.labels", &d.labels}}) {
      if (value->empty())
        fail(ErrorCode::usage, key, " is not set: data.kind = \"idx\" needs images and labels");
    }
    if (!d.path.empty())
      fail(ErrorCode::usage, "data.path: data.kind = \"idx\" reads data.images and data.labels");
    if (!d.eval_path.empty())
      fail(ErrorCode::usage,
           "data.eval_path: for data.kind = \"idx\" set data.eval_images and data.eval_labels");
    if (d.eval_images.empty() != d.eval_labels.empty()) {
      fail(ErrorCode::usage, d.eval_images.empty() ? "data.eval_images" : "data.eval_labels",
           " is not set: the two go together");
    }
  } else {
    if (d.path.empty())
      fail(ErrorCode::usage, "data.path is not set: data.kind = \"", d.kind, "\" needs a file");
    for (const auto& [key, value] :
         {std::pair{"images", &d.images}, std::pair{"labels", &d.labels},
          std::pair{"eval_images", &d.eval_images}, std::pair{"eval_labels", &d.eval_labels}}) {
      if (!value->empty())
        fail(ErrorCode::usage, "data.", key, " belongs to data.kind = \"idx\", not \"", d.kind, "\"");
    }
  }
  if (d.eval_share > 0 && !(d.eval_path.empty() && d.eval_images.empty())) {
    fail(ErrorCode::usage, "data.eval_share: an evaluation file is set as well; keep one of the two");
  }
}

void check_optim(const OptimOptions& o) {
  if (o.betas.size() != 2 || o.betas[0] >= 1 || o.betas[1] >= 1) {
    fail(ErrorCode::usage, "optim.betas must be two numbers, each at least 0 and below 1");
  }
  if (o.kind != "sgd" && (o.momentum != 0 || o.dampening != 0 || o.nesterov)) {
    fail(ErrorCode::usage, "optim.momentum, dampening and nesterov belong to optim.kind = \"sgd\"; ", o.kind,
         " has optim.betas");
  }
  if (o.nesterov && (o.momentum <= 0 || o.dampening != 0)) {
    fail(ErrorCode::usage, "optim.nesterov needs optim.momentum above 0 and optim.dampening = 0");
  }
  check_patterns("optim.no_decay", o.no_decay);
  for (const auto& group : o.groups) {
    if (group.match.empty())
      fail(ErrorCode::usage, "optim.group.match is not set: it says which parameters the group has");
    check_patterns("optim.group.match", {group.match});
  }
}

}  // namespace

void Config::check(const codec::CodecSet& codecs) const {
  if (model.graph.empty()) {
    fail(ErrorCode::usage, "model.graph is not set: name a .pt2 file (python -m trireme.export writes one)");
  }
  check_patterns("model.freeze", model.freeze);
  check_data(data);
  check_optim(optim);
  const bool evaluates = data.eval_share > 0 || !data.eval_path.empty() || !data.eval_images.empty();
  if (train.eval_every > 0 && !evaluates) {
    fail(ErrorCode::usage,
         "train.eval_every: nothing to evaluate on; set data.eval_share or an evaluation file");
  }
  choose_sync(*this, codecs);
}

std::vector<std::string> Config::without_effect(int world) const {
  const Config unset;
  std::vector<std::string> found;
  const auto look = [&](bool idle, std::string_view key, const auto& value, const auto& default_value,
                        const std::string& why) {
    if (idle && !(value == default_value)) found.push_back(cat(key, " has no effect with ", why));
  };
  const std::string kind = cat("optim.kind = \"", optim.kind, "\"");
  look(optim.kind == "sgd", "optim.betas", optim.betas, unset.optim.betas, kind);
  look(optim.kind == "sgd", "optim.eps", optim.eps, unset.optim.eps, kind);
  look(optim.schedule == "constant", "optim.final_lr_share", optim.final_lr_share, unset.optim.final_lr_share,
       "optim.schedule = \"constant\"");
  const std::string files = cat("data.kind = \"", data.kind, "\"");
  const bool windows = data.kind == "bytes" || data.kind == "tokens";
  look(!windows, "data.context", data.context, unset.data.context, files);
  look(data.kind != "tokens", "data.dtype", data.dtype, unset.data.dtype, files);
  const bool alone = world == 1;
  look(alone, "transport.secret_file", transport.secret_file, unset.transport.secret_file, "one process");
  look(alone, "transport.interface", transport.interface_name, unset.transport.interface_name, "one process");
  look(alone, "transport.connections", transport.connections, unset.transport.connections, "one process");
  return found;
}

}  // namespace trireme::train

#include "trireme/train/sync_choice.h"

#include "trireme/base/error.h"

namespace trireme::train {

using codec::Payload;
using comm::Strategy;

const char* name(Strategy strategy) {
  switch (strategy) {
    case Strategy::ring:
      return "ring";
    case Strategy::two_phase:
      return "two_phase";
    case Strategy::gather:
      return "gather";
    case Strategy::off:
      return "off";
  }
  return "unknown";
}

namespace {

// A ring spreads equal traffic over the fewest connections. With a lossy codec two phases encode a value
// twice at any number of ranks, where a ring would encode it at every hop.
Strategy natural_strategy(const codec::Codec* codec) {
  if (codec == nullptr) return Strategy::ring;
  const Payload payload = codec->traits().payload;
  return payload == Payload::summable    ? Strategy::ring
         : payload == Payload::two_phase ? Strategy::two_phase
                                         : Strategy::gather;
}

Strategy choose_strategy(const SyncOptions& sync, const codec::Codec* codec) {
  if (sync.strategy == "auto") return natural_strategy(codec);
  for (const Strategy s : {Strategy::ring, Strategy::two_phase, Strategy::gather, Strategy::off}) {
    if (sync.strategy != name(s)) continue;
    const Payload payload = codec == nullptr ? Payload::two_phase : codec->traits().payload;
    const bool adds = s == Strategy::ring || s == Strategy::two_phase;
    if ((adds && payload == Payload::gather_only) ||
        (s == Strategy::gather && payload == Payload::summable)) {
      fail(ErrorCode::usage, "sync.strategy = \"", sync.strategy, "\": payloads of codec ", codec->name(),
           " are ", codec::name(payload), "; use \"", name(natural_strategy(codec)), "\" or \"auto\"");
    }
    return s;
  }
  fail(ErrorCode::usage, "sync.strategy = \"", sync.strategy, "\" is not known");
}

// Momentum correction: the codec accumulates velocity before it chooses what to send, so the optimizer must
// not do it again (Lin et al., ICLR'18).
void hand_over_momentum(const Config& config, OptionTable& options, SyncChoice& choice) {
  OptimOptions& optim = choice.optim;
  if (optim.kind != "sgd") return;
  if (optim.dampening != 0)
    fail(ErrorCode::usage, "optim.dampening = ", optim.dampening,
         ": codec dgc takes the momentum over and has none");
  options.emplace("momentum", optim.momentum);
  options.emplace("nesterov", optim.nesterov);
  if (config.optim.momentum > 0) {
    choice.notes.push_back(cat("codec dgc takes optim.momentum = ", optim.momentum,
                               " over: velocities are accumulated before the choice of what to send"));
  }
  optim.momentum = 0;
  optim.nesterov = false;
}

}  // namespace

SyncChoice choose_sync(const Config& config, const codec::CodecSet& codecs) {
  const SyncOptions& sync = config.sync;
  SyncChoice choice;
  choice.optim = config.optim;
  choice.codec_name = sync.codec == "none" && config.precision.reduce == "bf16" ? "bf16" : sync.codec;
  try {
    codecs.find(choice.codec_name);
  } catch (const Error& error) {
    fail(error.code(), "sync.codec: ", error.what());
  }
  OptionTable options = sync.codec_options;
  if (choice.codec_name == "dgc") hand_over_momentum(config, options, choice);
  const codec::Feedback feedback = sync.error_feedback == "true"    ? codec::Feedback::on
                                   : sync.error_feedback == "false" ? codec::Feedback::off
                                                                    : codec::Feedback::automatic;
  codec::Choice chosen = codec::choose(codecs, choice.codec_name, options, feedback, "sync.codec_options",
                                       "sync.error_feedback");
  if (choice.codec_name != "none") {
    choice.codec = chosen.codec;
    choice.notes.push_back(chosen.note);
  }
  choice.strategy = choose_strategy(sync, choice.codec.get());
  return choice;
}

}  // namespace trireme::train

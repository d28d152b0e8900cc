// What a codec loses is kept and added to the next input: 1-bit SGD's error feedback (Seide et al. 2014),
// safe for every contractive codec (Karimireddy et al., "Error feedback fixes SignSGD", 2019).
#include <vector>

#include "trireme/base/error.h"
#include "trireme/codec/codec.h"
#include "trireme/codec/linear.h"

namespace trireme::codec {
namespace {

class ErrorFeedback final : public Codec {
 public:
  explicit ErrorFeedback(CodecPtr inner) : inner_(std::move(inner)) {}

  std::string_view name() const override { return inner_->name(); }
  Traits traits() const override {
    Traits t = inner_->traits();
    t.unbiased = false;
    t.stateful = true;
    return t;
  }
  std::vector<std::string> state_names() const override {
    std::vector<std::string> names{"residual"};
    for (auto& name : inner_->state_names()) names.push_back(std::move(name));
    return names;
  }
  size_t wire_bound(size_t elements) const override { return inner_->wire_bound(elements); }
  size_t encode(std::span<const float> in, std::span<std::byte> wire, const Call& call,
                State state) const override {
    TRIREME_CHECK(!state.empty() && state[0].size() == in.size(), name(), ": no residual");
    return inner_->encode_with_feedback(in, state[0], wire, call, state.subspan(1));
  }
  void decode(std::span<const std::byte> wire, std::span<float> out) const override {
    inner_->decode(wire, out);
  }
  void decode_add(std::span<const std::byte> wire, std::span<float> out) const override {
    inner_->decode_add(wire, out);
  }
  std::unique_ptr<Rounds> rounds(const Shapes& shapes) const override {
    auto inner = inner_->rounds(shapes);
    return inner == nullptr ? nullptr : rounds_with_feedback(std::move(inner), shapes);
  }

 private:
  CodecPtr inner_;
};

}  // namespace

size_t Codec::encode_with_feedback(std::span<const float> in, std::span<float> residual,
                                   std::span<std::byte> wire, const Call& call, State state) const {
  for (size_t i = 0; i < in.size(); ++i) residual[i] += in[i];
  const size_t used = encode(residual, wire, call, state);
  std::vector<float> decoded(in.size());
  decode(wire.first(used), decoded);
  for (size_t i = 0; i < in.size(); ++i) residual[i] -= decoded[i];
  return used;
}

CodecPtr with_error_feedback(CodecPtr inner) {
  return std::make_shared<ErrorFeedback>(std::move(inner));
}

Choice choose(const CodecSet& codecs, const std::string& name, const OptionTable& options, Feedback feedback,
              const std::string& options_key, const std::string& feedback_key) {
  const CodecKind& kind = codecs.find(name);
  const CodecPtr plain = codecs.make(name, options, options_key);
  const Traits traits = plain->traits();
  const std::string label = "codec " + name;
  if (kind.own_feedback) {
    if (feedback == Feedback::off)
      fail(ErrorCode::usage, feedback_key, " = false: ", name, " keeps what it does not send by its nature");
    return {plain, true, label + " keeps what it does not send"};
  }
  if (feedback == Feedback::off) return {plain, false, label + " without error feedback, as asked"};
  if (traits.near_exact) {
    if (feedback == Feedback::on && name != "none")
      return {with_error_feedback(plain), true, label + " with error feedback"};
    return {plain, false, label + " without error feedback: it loses next to nothing"};
  }
  if (traits.contractive) return {with_error_feedback(plain), true, label + " with error feedback"};
  bool untouched = !kind.contractive.empty();
  OptionTable safe = options;
  for (const auto& [key, value] : kind.contractive) {
    untouched = untouched && !options.contains(key);
    safe[key] = value;
  }
  if (untouched) {
    CodecPtr changed = codecs.make(name, safe, options_key);
    if (changed->traits().contractive)
      return {with_error_feedback(changed), true,
              label + " with error feedback and " + kind.contractive_note};
  }
  if (feedback == Feedback::on) {
    fail(ErrorCode::usage, feedback_key, " = true: ", name,
         " with these options is not contractive, so its residual would grow without end",
         kind.contractive_note.empty() ? "" : "; leave the choice to it: " + kind.contractive_note);
  }
  return {plain, false,
          label + " without error feedback: with these options it is not contractive" +
              (traits.unbiased ? ", but unbiased" : "")};
}

}  // namespace trireme::codec

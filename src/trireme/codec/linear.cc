#include "trireme/codec/linear.h"

#include <algorithm>
#include <cmath>

#include "trireme/codec/block_codec.h"

namespace trireme::codec {
namespace {

constexpr size_t kLinearHeader = Header::kBytes + 2 * sizeof(uint32_t) + 2 * sizeof(uint64_t);

Shape shape_of(const Call& call, size_t elements, std::string_view codec) {
  if (call.rows == 0 && call.columns == 0) return {"", static_cast<int64_t>(elements), 1};
  const Shape shape{"", call.rows, call.columns};
  if (shape.rows < 1 || shape.columns < 1 || static_cast<size_t>(shape.elements()) != elements)
    fail(ErrorCode::usage, "codec ", codec, ": ", call.rows, " x ", call.columns, " is not the shape of ",
         elements, " elements");
  return shape;
}

WireId wire_id(std::string_view codec) {
  if (codec == "randk") return WireId::randk;
  if (codec == "powersgd") return WireId::powersgd;
  TRIREME_CHECK(codec == "acpsgd", codec);
  return WireId::acpsgd;
}

std::vector<std::span<const float>> views(const std::vector<std::vector<float>>& numbers) {
  return {numbers.begin(), numbers.end()};
}

size_t numbers_of(const Rounds& rounds) {
  size_t sum = 0;
  for (int r = 0; r < rounds.count(); ++r) sum += rounds.elements(r);
  return sum;
}

}  // namespace

std::vector<std::vector<float>> run_alone(Rounds& rounds, std::span<const float> data, const Call& call) {
  std::vector<std::vector<float>> numbers;
  for (int r = 0; r < rounds.count(); ++r) {
    std::vector<float> own(rounds.elements(r));
    rounds.encode(r, data, views(numbers), own, call);
    numbers.push_back(std::move(own));
  }
  return numbers;
}

std::vector<std::byte> pack(std::string_view codec, const Shape& shape,
                            const std::vector<std::vector<float>>& numbers, const Call& call) {
  size_t floats = 0;
  for (const auto& n : numbers) floats += n.size();
  std::vector<std::byte> wire(kLinearHeader + floats * sizeof(float));
  write({wire_id(codec), 0, static_cast<size_t>(shape.elements())}, wire.data());
  std::byte* to = wire.data() + Header::kBytes;
  store(to, static_cast<uint32_t>(shape.rows));
  store(to + 4, static_cast<uint32_t>(shape.columns));
  store(to + 8, call.shared_seed);
  store(to + 16, call.step);
  to += 24;
  for (const auto& n : numbers) {
    if (!n.empty()) std::memcpy(to, n.data(), n.size() * sizeof(float));
    to += n.size() * sizeof(float);
  }
  return wire;
}

size_t LinearCodec::wire_bound(size_t elements) const {
  return kLinearHeader + numbers_of(*rounds({{"", static_cast<int64_t>(elements), 1}})) * sizeof(float);
}

size_t LinearCodec::encode(std::span<const float> in, std::span<std::byte> wire, const Call& call,
                           State) const {
  check_length(name(), in.size());
  const Shape shape = shape_of(call, in.size(), name());
  const auto bytes = pack(name(), shape, run_alone(*rounds({shape}), in, call), call);
  check_room(name(), wire, bytes.size());
  std::copy(bytes.begin(), bytes.end(), wire.begin());
  return bytes.size();
}

void LinearCodec::decode(std::span<const std::byte> wire, std::span<float> out) const {
  check_length(name(), out.size());
  WireReader reader(name(), wire);
  reader.header({wire_id(name()), 0, out.size()});
  Shape shape;
  shape.rows = reader.number<uint32_t>();
  shape.columns = reader.number<uint32_t>();
  if (static_cast<uint64_t>(shape.rows) * static_cast<uint64_t>(shape.columns) != out.size())
    reader.refuse("a payload of ", shape.rows, " x ", shape.columns, " elements where ", out.size(),
                  " belong");
  Call call;
  call.shared_seed = reader.number<uint64_t>();
  call.step = reader.number<uint64_t>();
  if (out.empty()) return reader.end();
  const auto of_shape = rounds({shape});
  if (reader.left() != numbers_of(*of_shape) * sizeof(float))
    reader.refuse(reader.left(), " bytes of numbers where ", numbers_of(*of_shape) * sizeof(float),
                  " belong");
  std::vector<std::vector<float>> numbers;
  for (int r = 0; r < of_shape->count(); ++r) {
    numbers.emplace_back(of_shape->elements(r));
    const auto bytes = reader.take(numbers.back().size() * sizeof(float));
    if (!bytes.empty()) std::memcpy(numbers.back().data(), bytes.data(), bytes.size());
    for (const float v : numbers.back()) {
      if (!std::isfinite(v)) reader.refuse("a number that is not finite");
    }
  }
  of_shape->decode(views(numbers), out, call);
}

void LinearCodec::decode_add(std::span<const std::byte> wire, std::span<float> out) const {
  std::vector<float> decoded(out.size());
  decode(wire, decoded);
  for (size_t i = 0; i < out.size(); ++i) out[i] += decoded[i];
}

namespace {

class FeedbackRounds final : public Rounds {
 public:
  FeedbackRounds(std::unique_ptr<Rounds> inner, const Shapes& shapes)
      : inner_(std::move(inner)), shapes_(shapes) {
    int64_t elements = 0;
    for (const Shape& s : shapes) elements += s.elements();
    residual_.resize(static_cast<size_t>(elements));
    decoded_.resize(residual_.size());
    own_.resize(inner_->elements(count() - 1));
  }
  int count() const override { return inner_->count(); }
  size_t elements(int round) const override { return inner_->elements(round); }

  void encode(int round, std::span<const float> data, std::span<const std::span<const float>> means,
              std::span<float> out, const Call& call) override {
    if (round == 0) {
      for (size_t i = 0; i < data.size(); ++i) residual_[i] += data[i];
    }
    inner_->encode(round, residual_, means, out, call);
    if (round == count() - 1) std::copy(out.begin(), out.end(), own_.begin());
  }
  void decode(std::span<const std::span<const float>> means, std::span<float> data,
              const Call& call) override {
    inner_->decode(means, data, call);
  }
  void finish(std::span<const std::span<const float>> means, const Call& call) override {
    std::vector<std::span<const float>> mine(means.begin(), means.end());
    mine.back() = own_;
    inner_->decode(mine, decoded_, call);
    for (size_t i = 0; i < residual_.size(); ++i) residual_[i] -= decoded_[i];
    inner_->finish(means, call);
  }
  std::map<std::string, std::vector<std::span<float>>> state() override {
    auto all = inner_->state();
    auto& mine = all["residual"];
    size_t at = 0;
    for (const Shape& s : shapes_) {
      mine.push_back(std::span(residual_).subspan(at, static_cast<size_t>(s.elements())));
      at += static_cast<size_t>(s.elements());
    }
    return all;
  }

 private:
  std::unique_ptr<Rounds> inner_;
  Shapes shapes_;
  std::vector<float> residual_, decoded_, own_;
};

}  // namespace

std::unique_ptr<Rounds> rounds_with_feedback(std::unique_ptr<Rounds> inner, const Shapes& shapes) {
  return std::make_unique<FeedbackRounds>(std::move(inner), shapes);
}

}  // namespace trireme::codec

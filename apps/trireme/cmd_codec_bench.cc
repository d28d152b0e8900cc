#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "codec_bench.h"
#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/rng.h"
#include "trireme/base/units.h"
#include "trireme/codec/codec.h"

namespace trireme::app {
namespace {

using nlohmann::json;

constexpr size_t kPiece = size_t{1} << 18;  // elements of a payload, as train cuts them

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Values with the tails of gradients, or those of a file, repeated.
std::vector<float> gradients(const CodecBenchArguments& a) {
  const auto elements = static_cast<size_t>(parse_bytes(a.size).value) / sizeof(float);
  if (elements == 0) fail(ErrorCode::usage, "--size ", a.size, ": at least 4 bytes");
  std::vector<float> values(elements);
  size_t drawn = std::min(elements, kPiece);
  if (a.in.empty()) {
    PhiloxStream rng(1, 0);
    for (size_t i = 0; i < drawn; ++i) {
      const double u = rng.next_double() - 0.5;  // Laplace
      values[i] = static_cast<float>(std::copysign(1e-3 * std::log(1 - 2 * std::fabs(u) + 1e-12), u));
    }
  } else {
    const std::string bytes = read_file(a.in);
    if (bytes.size() < sizeof(float) || bytes.size() % sizeof(float) != 0)
      fail(ErrorCode::input, a.in, ": ", bytes.size(), " bytes are not a whole number of float32 values");
    drawn = std::min(elements, bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), drawn * sizeof(float));
  }
  for (size_t i = drawn; i < elements; ++i) values[i] = values[i - drawn];
  return values;
}

// All payloads of the gradients, with what the codec remembers.
class Subject {
 public:
  Subject(codec::CodecPtr codec, const std::vector<float>& in)
      : codec_(std::move(codec)), in_(in), out_(in.size()), memory_(codec_->state_names().size()) {
    for (auto& m : memory_) m.assign(in.size(), 0.0f);
    for (size_t at = 0; at < in.size(); at += kPiece) {
      const size_t n = std::min(kPiece, in.size() - at);
      const auto rows = static_cast<int64_t>(n % 512 == 0 ? 512 : n);
      rounds_.push_back(codec_->rounds({{"piece", rows, static_cast<int64_t>(n) / rows}}));
      if (rounds_.back() == nullptr) {
        wires_.emplace_back(codec_->wire_bound(n));
        used_.push_back(wires_.back().size());
      } else {
        numbers_.emplace_back();
        for (int r = 0; r < rounds_.back()->count(); ++r)
          numbers_.back().emplace_back(rounds_.back()->elements(r));
      }
    }
  }

  void encode(uint64_t step) {
    for_each_piece([&](size_t p, size_t at, size_t n) {
      const codec::Call call = call_of(step, p);
      if (rounds_[p] != nullptr) {
        for (size_t r = 0; r < numbers_[p].size(); ++r) {
          const std::vector<std::span<const float>> means(numbers_[p].begin(), numbers_[p].end());
          rounds_[p]->encode(static_cast<int>(r), std::span(in_).subspan(at, n), std::span(means).first(r),
                             numbers_[p][r], call);
        }
        return;
      }
      std::vector<std::span<float>> state;
      for (auto& m : memory_) state.push_back(std::span(m).subspan(at, n));
      used_[p] = codec_->encode(std::span(in_).subspan(at, n), wires_[p], call, state);
    });
  }
  // Adds, as an aggregator does; rounds are decoded, and end their step.
  void decode(uint64_t step) {
    for_each_piece([&](size_t p, size_t at, size_t n) {
      const auto out = std::span(out_).subspan(at, n);
      if (rounds_[p] == nullptr) return codec_->decode_add(std::span(wires_[p]).first(used_[p]), out);
      const std::vector<std::span<const float>> means(numbers_[p].begin(), numbers_[p].end());
      rounds_[p]->decode(means, out, call_of(step, p));
      rounds_[p]->finish(means, call_of(step, p));
    });
  }

 private:
  template <typename Body>
  void for_each_piece(const Body& body) {
    for (size_t p = 0; p * kPiece < in_.size(); ++p)
      body(p, p * kPiece, std::min(kPiece, in_.size() - p * kPiece));
  }
  static codec::Call call_of(uint64_t step, size_t piece) {
    codec::Call call;
    call.seed = mix(step, piece, 1);
    call.shared_seed = mix(step, piece, 2);
    call.step = step;
    return call;
  }
  codec::CodecPtr codec_;
  const std::vector<float>& in_;
  std::vector<float> out_;
  std::vector<std::vector<float>> memory_;
  std::vector<std::unique_ptr<codec::Rounds>> rounds_;
  std::vector<std::vector<std::byte>> wires_;
  std::vector<size_t> used_;
  std::vector<std::vector<std::vector<float>>> numbers_;
};

template <typename Body>
double seconds_of(const Body& body) {
  const auto begin = steady_clock().now();
  body();
  return std::chrono::duration<double>(steady_clock().now() - begin).count();
}

// Alternating, so that what disturbs the machine disturbs both; the first round warms the buffers.
json measure(const codec::CodecPtr& codec, const std::vector<float>& in, int rounds) {
  Subject subject(codec, in);
  std::vector<float> copy(in.size());
  const double bytes = static_cast<double>(in.size() * sizeof(float));
  std::vector<double> memcpy_rates, encode_rates, decode_rates, encode_ratios, decode_ratios;
  for (int round = 0; round <= rounds; ++round) {
    const auto step = static_cast<uint64_t>(round + 1);
    const double copied =
        bytes / seconds_of([&] { std::memcpy(copy.data(), in.data(), in.size() * sizeof(float)); });
    const double encoded = bytes / seconds_of([&] { subject.encode(step); });
    const double decoded = bytes / seconds_of([&] { subject.decode(step); });
    if (round == 0) continue;
    memcpy_rates.push_back(copied);
    encode_rates.push_back(encoded);
    decode_rates.push_back(decoded);
    encode_ratios.push_back(encoded / copied);
    decode_ratios.push_back(decoded / copied);
  }
  return {{"memcpy_bytes_per_s", median(memcpy_rates)},
          {"encode_bytes_per_s", median(encode_rates)},
          {"decode_bytes_per_s", median(decode_rates)},
          {"encode_over_memcpy", median(encode_ratios)},
          {"decode_over_memcpy", median(decode_ratios)}};
}

}  // namespace

int run_codec_bench(const CodecBenchArguments& a) {
  if (a.rounds < 1) fail(ErrorCode::usage, "--rounds ", a.rounds, ": at least 1");
  const codec::CodecSet codecs = codec::built_in_codecs();
  std::vector<std::string> names;
  if (a.codec.empty()) {
    for (const auto& [name, kind] : codecs.all()) names.push_back(name);
  } else {
    names.push_back(codecs.find(a.codec).name);
  }
  const std::vector<float> in = gradients(a);
  json rows = json::array();
  for (const auto& name : names) {
    const codec::CodecPtr plain = codecs.make(name);
    const codec::Choice worn =
        codec::choose(codecs, name, {}, codec::Feedback::automatic, "options", "error feedback");
    for (const bool feedback : {false, true}) {
      if (feedback && (!worn.feedback || codecs.find(name).own_feedback)) continue;
      json row = measure(feedback ? worn.codec : plain, in, a.rounds);
      row["codec"] = name;
      row["error_feedback"] = feedback || codecs.find(name).own_feedback;
      rows.push_back(row);
      if (a.json) continue;
      std::printf("%-9s %-13s encode %s/s (%.2f x memcpy)  decode and add %s/s (%.2f x)\n", name.c_str(),
                  row["error_feedback"].get<bool>() ? "with feedback" : "",
                  for_people(Bytes{static_cast<int64_t>(row["encode_bytes_per_s"].get<double>())}).c_str(),
                  row["encode_over_memcpy"].get<double>(),
                  for_people(Bytes{static_cast<int64_t>(row["decode_bytes_per_s"].get<double>())}).c_str(),
                  row["decode_over_memcpy"].get<double>());
      std::fflush(stdout);
    }
  }
  if (a.json) {
    const json answer{{"size_bytes", in.size() * sizeof(float)}, {"rounds", a.rounds}, {"codecs", rows}};
    std::printf("%s\n", answer.dump().c_str());
  }
  return 0;
}

}  // namespace trireme::app

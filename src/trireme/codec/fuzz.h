#pragma once
// Fuzzing of decoders: one input is a codec variant, a length and wire bytes. The corpus is a text file, one
// input a line: label, length, bytes in hexadecimal.
#include <algorithm>
#include <cctype>
#include <cstring>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/codec/test_data.h"

namespace trireme::codec {

struct FuzzInput {
  std::string label;
  size_t elements = 0;
  std::vector<std::byte> wire;
};

inline std::map<std::string, CodecPtr> fuzz_codecs() {
  const CodecSet set = built_in_codecs();
  std::map<std::string, CodecPtr> codecs;
  for (const Variant& v : variants()) codecs[v.label] = set.make(v.codec, v.options);
  return codecs;
}

// What came of it, without numbers: "decoded", or the refusal. A crash, a write outside or another kind of
// error is a finding: check_failed ends the program.
inline std::string outcome_of(const Codec& codec, const FuzzInput& input) {
  constexpr float kGuard = 1234.5f;
  std::vector<float> out(input.elements + 2, kGuard);
  const auto inside = std::span(out).subspan(1, input.elements);
  std::string outcome = "decoded";
  try {
    codec.decode(input.wire, inside);
    codec.decode_add(input.wire, inside);
  } catch (const Error& e) {
    TRIREME_CHECK(e.code() == ErrorCode::input, e.what());
    outcome = e.what();
  }
  TRIREME_CHECK(out.front() == kGuard && out.back() == kGuard, input.label, " wrote outside");
  std::erase_if(outcome,
                [](unsigned char c) { return std::isdigit(c) != 0 || c == '.' || c == '-' || c == '+'; });
  return input.label + ": " + outcome;
}

inline std::string to_line(const FuzzInput& input) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string line = cat(input.label, " ", input.elements, " ");
  for (const std::byte b : input.wire) {
    line += kHex[static_cast<unsigned>(b) >> 4];
    line += kHex[static_cast<unsigned>(b) & 15];
  }
  return line;
}

inline std::vector<FuzzInput> read_corpus(const std::string& path) {
  std::istringstream lines(read_file(path));
  std::vector<FuzzInput> corpus;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    FuzzInput input;
    std::string hex;
    words >> input.label >> input.elements >> hex;
    for (size_t i = 0; i + 1 < hex.size(); i += 2)
      input.wire.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
    corpus.push_back(std::move(input));
  }
  return corpus;
}

// A neighbour of an input: a few bytes changed, cut, lengthened, or another length asked for.
inline FuzzInput mutated(FuzzInput input, PhiloxStream& rng) {
  const auto below = [&](size_t n) { return n == 0 ? 0 : rng.next_u32() % n; };
  const size_t changes = 1 + below(4);
  for (size_t c = 0; c < changes; ++c) {
    auto& w = input.wire;
    switch (rng.next_u32() % 7) {
      case 0:
        if (!w.empty()) w[below(w.size())] = static_cast<std::byte>(rng.next_u32());
        break;
      case 1:
        if (!w.empty()) w[below(w.size())] ^= std::byte{1} << (rng.next_u32() % 8);
        break;
      case 2:
        w.resize(below(w.size() + 1));
        break;
      case 3:
        for (size_t k = below(9); k > 0; --k) w.push_back(static_cast<std::byte>(rng.next_u32()));
        break;
      case 4: {  // a whole number somewhere: none, one, all bits, or any
        const uint32_t numbers[] = {0, 1, UINT32_MAX, 0x7f800000, 0x80000000, rng.next_u32()};
        const uint32_t number = numbers[rng.next_u32() % 6];
        if (w.size() >= 4) std::memcpy(w.data() + below(w.size() - 3), &number, 4);
        break;
      }
      case 5:
        input.elements = below(700);
        break;
      default:
        if (w.size() >= 8) {  // the length in the header follows the one asked for
          const auto n = static_cast<uint32_t>(input.elements);
          std::memcpy(w.data() + 4, &n, 4);
        }
    }
  }
  return input;
}

}  // namespace trireme::codec

#pragma once
// A gradient codec: float32 elements to wire bytes and back. One narrow interface; the set is built in main
// and passed. Source: CompLL's encode/decode pair (HiPress, SOSP'21, section 4), with decode-and-add as its
// own operation because the merge step needs no decoded copy.
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "trireme/base/options.h"

namespace trireme::codec {

// How payloads of several ranks may be joined.
enum class Payload : uint8_t {
  summable,     // wire bytes add up element by element: rings work on the wire form
  two_phase,    // decode, add, encode again at an aggregator
  gather_only,  // every rank needs every payload
};

struct Traits {
  Payload payload = Payload::two_phase;
  bool unbiased = false;
  bool contractive = false;
  bool stateful = false;
  double bits_per_element = 32;
};

class Codec {
 public:
  virtual ~Codec() = default;
  virtual std::string_view name() const = 0;
  virtual Traits traits() const = 0;
  // Upper bound of the payload of `elements` floats, in bytes; exact for fixed-rate codecs.
  virtual size_t wire_bound(size_t elements) const = 0;
  // Encodes into `wire` (at least wire_bound bytes); returns the bytes used. `seed` names the random stream;
  // equal seeds give equal bytes. Thread-safe: no hidden state.
  virtual size_t encode(std::span<const float> in, std::span<std::byte> wire, uint64_t seed) const = 0;
  // out = decoded. Error(input) when the bytes are not a payload of out.size() elements; never reads past
  // `wire`.
  virtual void decode(std::span<const std::byte> wire, std::span<float> out) const = 0;
  // out += decoded.
  virtual void decode_add(std::span<const std::byte> wire, std::span<float> out) const = 0;
};

using CodecPtr = std::shared_ptr<const Codec>;

// The codecs that a program offers, by name; built explicitly, no registration behind the reader's back.
class CodecSet {
 public:
  void add(CodecPtr codec);
  // Error(usage) naming the nearest known codec.
  CodecPtr find(const std::string& name) const;
  const std::map<std::string, CodecPtr>& all() const { return codecs_; }

 private:
  std::map<std::string, CodecPtr> codecs_;
};

CodecPtr make_none();  // float32 as it is
CodecPtr make_bf16();  // round to nearest even, NaN kept NaN

}  // namespace trireme::codec

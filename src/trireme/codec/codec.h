#pragma once
// A gradient codec: float32 elements to wire bytes and back. One narrow interface; the set is built in main
// and passed. Source: CompLL's encode/decode pair (HiPress, SOSP'21, section 4), with decode-and-add as its
// own operation because the merge step needs no decoded copy, and with error feedback (Seide et al.,
// Interspeech'14; Karimireddy et al., ICML'19) as a decorator that any codec can wear.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/options.h"

namespace trireme::codec {

// How payloads of several ranks may be joined.
enum class Payload : uint8_t {
  summable,     // float32 numbers that add up element by element: rings work on the wire form
  two_phase,    // decode, add, encode again at an aggregator
  gather_only,  // every rank needs every payload
};
// "summable", "two_phase", "gather_only".
std::string_view name(Payload payload);

struct Traits {
  Payload payload = Payload::two_phase;
  bool unbiased = false;     // the mean over seeds is the input, but for the stated precision
  bool contractive = false;  // |decoded - x|^2 < |x|^2 for every x (of random codecs: its mean)
  bool stateful = false;     // remembers something of its own from step to step
  bool near_exact = false;   // loses less than a 16-bit float does: feedback would not pay
  bool fixed_size = true;    // every payload has wire_bound bytes
  int rounds = 1;            // exchanges that depend on each other's sums
  double bits_per_element = 32;
};

// Of one encode.
struct Call {
  uint64_t seed = 0;         // names the random stream: equal seeds give equal bytes
  uint64_t shared_seed = 0;  // equal on all ranks that encode the same elements in the same step
  uint32_t worker = 0;       // which of those ranks this is
  uint32_t workers = 1;
  uint64_t step = 0;              // the optimizer's, from 1
  int64_t rows = 0, columns = 0;  // the tensor as a matrix, where a codec wants to know; 0: a vector
};

// What a codec remembers of the elements that it encodes, by state_names(), each as long as the input.
using State = std::span<const std::span<float>>;

// The tensors that lie one after the other in a list of elements (a bucket of gradients).
struct Shape {
  std::string name;
  int64_t rows = 0, columns = 1;  // a vector has one column
  int64_t elements() const { return rows * columns; }
};
using Shapes = std::vector<Shape>;

// The exchange of a codec whose payloads are summed as they are, of one list of tensors on one rank. Round
// k's numbers may depend on the sums of rounds before it. Not thread-safe.
class Rounds {
 public:
  virtual ~Rounds() = default;
  virtual int count() const = 0;
  virtual size_t elements(int round) const = 0;
  // Writes round's numbers. `data` is the input; `means` are the results of the rounds before.
  virtual void encode(int round, std::span<const float> data, std::span<const std::span<const float>> means,
                      std::span<float> out, const Call& call) = 0;
  // data = what the means of all rounds decode to.
  virtual void decode(std::span<const std::span<const float>> means, std::span<float> data,
                      const Call& call) = 0;
  // Ends the step: the state becomes that of the next one.
  virtual void finish(std::span<const std::span<const float>> means, const Call& call) = 0;
  // Live memory by name ("residual", "q", …): one entry per tensor, empty for tensors without.
  virtual std::map<std::string, std::vector<std::span<float>>> state() = 0;
};

// All member functions are thread-safe: a codec holds options, never state.
class Codec {
 public:
  virtual ~Codec() = default;
  virtual std::string_view name() const = 0;
  virtual Traits traits() const = 0;
  // Names of the vectors that encode keeps, e.g. {"residual"}; empty: none.
  virtual std::vector<std::string> state_names() const { return {}; }
  // Upper bound of the payload of `elements` floats, in bytes.
  virtual size_t wire_bound(size_t elements) const = 0;
  // Encodes into `wire` (at least wire_bound bytes, any address); returns the bytes used. `state` has one
  // span per state name, starting with zeros. Error(diverged) names the first element that is NaN or
  // infinite, where the codec cannot carry it.
  virtual size_t encode(std::span<const float> in, std::span<std::byte> wire, const Call& call,
                        State state = {}) const = 0;
  // As encode of in + residual; residual becomes what was lost. `state` is the codec's own. Codecs override
  // it where one pass does both.
  virtual size_t encode_with_feedback(std::span<const float> in, std::span<float> residual,
                                      std::span<std::byte> wire, const Call& call, State state) const;
  // out = decoded. Error(input) when the bytes are not a payload of out.size() elements by a codec of this
  // name and these options; never reads or writes outside the spans, whatever the bytes.
  virtual void decode(std::span<const std::byte> wire, std::span<float> out) const = 0;
  // out += decoded.
  virtual void decode_add(std::span<const std::byte> wire, std::span<float> out) const = 0;
  // Of summable codecs other than none; else null.
  virtual std::unique_ptr<Rounds> rounds(const Shapes&) const { return nullptr; }
};

using CodecPtr = std::shared_ptr<const Codec>;

// Many small tensors at once.
struct EncodeJob {
  std::span<const float> in;
  std::span<std::byte> wire;
  Call call;
  State state;
  size_t used = 0;  // result
};
struct DecodeJob {
  std::span<const std::byte> wire;
  std::span<float> out;
  bool add = false;
};
// On `threads` threads; the same bytes whatever their number. The first error is rethrown.
void encode_all(const Codec& codec, std::span<EncodeJob> jobs, int threads = 1);
void decode_all(const Codec& codec, std::span<const DecodeJob> jobs, int threads = 1);

// `inner` with a residual: its first state is named "residual", the others are inner's.
CodecPtr with_error_feedback(CodecPtr inner);

// What a codec is before its options are known.
struct CodecKind {
  std::string name;
  std::string help;
  bool experimental = false;
  // Lists the options, with defaults, into `o`; the returned function makes the codec of what they hold then.
  // It keeps the fields alive.
  std::function<std::function<CodecPtr()>(OptionList& o)> open;
  // Options that make it contractive, for error feedback; and what that means, for the log. Empty: none
  // exist.
  OptionTable contractive;
  std::string contractive_note;
  bool own_feedback = false;  // keeps what it does not send by itself
};

// The codecs that a program offers, by name; built explicitly, no registration behind the reader's back.
class CodecSet {
 public:
  void add(CodecKind kind);
  // Error(usage) naming the nearest known codec.
  const CodecKind& find(const std::string& name) const;
  // Error(usage) naming `where` and the option that is unknown or impossible.
  CodecPtr make(const std::string& name, const OptionTable& options = {},
                const std::string& where = "codec options") const;
  const std::map<std::string, CodecKind>& all() const { return kinds_; }

 private:
  std::map<std::string, CodecKind> kinds_;
};

// How a codec goes about what it loses.
enum class Feedback : uint8_t { automatic, on, off };
struct Choice {
  CodecPtr codec;
  bool feedback = false;  // keeps what it loses, by itself or by the decorator
  std::string note;       // one line for the log
};
// automatic: on where the codec is contractive, or becomes so by options that the user left at their
// defaults; else off. Error(usage) for a wish that would diverge or has no meaning, naming `feedback_key`.
Choice choose(const CodecSet& codecs, const std::string& name, const OptionTable& options, Feedback feedback,
              const std::string& options_key, const std::string& feedback_key);

CodecPtr make_none();  // float32 as it is
// All that this version has, on the fastest kernels of this processor.
CodecSet built_in_codecs();

}  // namespace trireme::codec

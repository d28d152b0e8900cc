// codec_fuzz [--seconds S] [--corpus FILE] [--seed N] [--keep]: mutates payloads, starting from the corpus
// and from proper payloads, and follows inputs whose outcome is new. --keep writes those of at most 300 bytes
// back to FILE. Built with the asan preset it finds reads outside as well. The input at work lies in
// codec_fuzz.last.
#include <chrono>
#include <cstdio>
#include <set>

#include "trireme/base/clock.h"
#include "trireme/codec/fuzz.h"

namespace trireme::codec {
namespace {

struct Arguments {
  double seconds = 60;
  std::string corpus;
  uint64_t seed = 1;
  bool keep = false;
};

Arguments parse(int argc, char** argv) {
  Arguments a;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&] {
      if (++i >= argc) fail(ErrorCode::usage, word, " needs a value");
      return std::string(argv[i]);
    };
    if (word == "--seconds") {
      a.seconds = std::stod(value());
    } else if (word == "--corpus") {
      a.corpus = value();
    } else if (word == "--seed") {
      a.seed = std::stoull(value());
    } else if (word == "--keep") {
      a.keep = true;
    } else {
      fail(ErrorCode::usage, "unknown word ", word);
    }
  }
  return a;
}

int run(const Arguments& a) {
  const auto codecs = fuzz_codecs();
  PhiloxStream rng(a.seed, 0);
  std::vector<FuzzInput> pool;
  std::set<std::string> seen;
  if (!a.corpus.empty()) pool = read_corpus(a.corpus);
  for (const auto& input : pool) seen.insert(outcome_of(*codecs.at(input.label), input));
  for (const auto& [label, codec] : codecs) {
    for (const size_t n : {0u, 1u, 9u, 130u, 600u})
      pool.push_back({label, n, encoded(*codec, gaussian(n, n), call_of(1))});
  }
  std::vector<FuzzInput> fresh;
  const auto begin = steady_clock().now();
  const auto seconds = [&] { return std::chrono::duration<double>(steady_clock().now() - begin).count(); };
  uint64_t runs = 0;
  for (; runs % 256 != 0 || seconds() < a.seconds; ++runs) {
    const FuzzInput input = mutated(pool[rng.next_u32() % pool.size()], rng);
    if (runs % 64 == 0) {  // cheap, and near enough to repeat a finding with the same seed
      if (std::FILE* last = std::fopen("codec_fuzz.last", "w")) {
        std::fprintf(last, "seed %llu run %llu\n%s\n", static_cast<unsigned long long>(a.seed),
                     static_cast<unsigned long long>(runs), to_line(input).c_str());
        std::fclose(last);
      }
    }
    if (!seen.insert(outcome_of(*codecs.at(input.label), input)).second) continue;
    pool.push_back(input);
    if (input.wire.size() <= 300) fresh.push_back(input);
  }
  std::remove("codec_fuzz.last");
  std::printf("%llu inputs in %.0f s, %zu outcomes, %zu of them new, no finding\n",
              static_cast<unsigned long long>(runs), seconds(), seen.size(), fresh.size());
  if (!a.keep || a.corpus.empty()) return 0;
  std::string text = read_file(a.corpus);
  for (const auto& input : fresh) text += to_line(input) + "\n";
  write_file(a.corpus, text);
  return 0;
}

}  // namespace
}  // namespace trireme::codec

int main(int argc, char** argv) {
  try {
    return trireme::codec::run(trireme::codec::parse(argc, argv));
  } catch (const trireme::Error& e) {
    std::fprintf(stderr, "codec_fuzz: %s\n", e.what());
    return trireme::exit_code(e.code());
  }
}

// The kept corpus, and a short run of what codec_fuzz does for as long as one likes.
#include "trireme/codec/fuzz.h"

#include <gtest/gtest.h>

#include <set>

namespace trireme::codec {
namespace {

TEST(Fuzz, TheCorpusHasNoFindings) {
  const auto codecs = fuzz_codecs();
  std::set<std::string> outcomes;
  for (const FuzzInput& input : read_corpus(TRIREME_CODEC_CORPUS))
    outcomes.insert(outcome_of(*codecs.at(input.label), input));
  EXPECT_GT(outcomes.size(), 100u);
}

TEST(Fuzz, NeighboursOfTheCorpusHaveNoFindings) {
  const auto codecs = fuzz_codecs();
  const auto corpus = read_corpus(TRIREME_CODEC_CORPUS);
  PhiloxStream rng(42, 0);
  for (int run = 0; run < 20'000; ++run) {
    const FuzzInput input = mutated(corpus[rng.next_u32() % corpus.size()], rng);
    outcome_of(*codecs.at(input.label), input);
  }
}

}  // namespace
}  // namespace trireme::codec

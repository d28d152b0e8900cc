#include "trireme/train/sync_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::train {
namespace {

using ::testing::HasSubstr;

SyncChoice chosen(const std::vector<std::string>& sets) {
  Config config;
  OptionList list;
  config.list(list);
  for (const auto& s : sets) list.set(s);
  return choose_sync(config, codec::built_in_codecs());
}

void expect_refused(const std::vector<std::string>& sets, const std::string& what) {
  try {
    chosen(sets);
    ADD_FAILURE() << what;
  } catch (const Error& e) {
    EXPECT_EQ(exit_code(e.code()), 2);
    EXPECT_THAT(e.what(), HasSubstr(what));
  }
}

TEST(SyncChoice, AutoTakesTheStrategyThatFits) {
  EXPECT_EQ(chosen({}).strategy, comm::Strategy::ring);
  EXPECT_EQ(chosen({}).codec, nullptr);
  EXPECT_EQ(chosen({"precision.reduce=bf16"}).codec_name, "bf16");
  for (const auto& [codec, strategy] : {std::pair{"bf16", comm::Strategy::two_phase},
                                        {"onebit", comm::Strategy::two_phase},
                                        {"topk", comm::Strategy::gather},
                                        {"adacomp", comm::Strategy::gather},
                                        {"powersgd", comm::Strategy::ring},
                                        {"randk", comm::Strategy::ring}})
    EXPECT_EQ(chosen({cat("sync.codec=", codec)}).strategy, strategy) << codec;
}

TEST(SyncChoice, NamesAStrategyWithoutMeaning) {
  for (const char* codec : {"topk", "dgc", "graddrop", "adacomp"}) {
    for (const char* strategy : {"ring", "two_phase"})
      expect_refused({cat("sync.codec=", codec), cat("sync.strategy=", strategy)}, "sync.strategy");
  }
  for (const char* codec : {"randk", "powersgd", "acpsgd"})
    expect_refused({cat("sync.codec=", codec), "sync.strategy=gather"}, "sync.strategy");
  for (const char* codec : {"none", "bf16", "onebit", "topk"})
    EXPECT_EQ(chosen({cat("sync.codec=", codec), "sync.strategy=gather"}).strategy, comm::Strategy::gather);
  EXPECT_EQ(chosen({"sync.codec=topk", "sync.strategy=off"}).strategy, comm::Strategy::off);
}

TEST(SyncChoice, NamesCodecsOptionsAndFeedback) {
  expect_refused({"sync.codec=onebits"}, "did you mean 'onebit'");
  expect_refused({"sync.codec=bf16", "sync.codec_options={block=256}"}, "sync.codec_options of bf16");
  expect_refused({"sync.codec=onebit", "sync.codec_options={block=100}"}, "multiple of 128");
  expect_refused({"sync.codec=qsgd", "sync.error_feedback=true"}, "sync.error_feedback");
  expect_refused({"sync.codec=dgc", "sync.error_feedback=false"}, "sync.error_feedback");
  EXPECT_TRUE(chosen({"sync.codec=onebit", "sync.error_feedback=false"}).codec->state_names().empty());
  EXPECT_EQ(chosen({"sync.codec=onebit"}).codec->state_names().size(), 1u);
}

TEST(SyncChoice, DgcTakesTheMomentumOver) {
  const SyncChoice c = chosen({"sync.codec=dgc", "optim.momentum=0.9", "optim.nesterov=true"});
  EXPECT_EQ(c.optim.momentum, 0);
  EXPECT_FALSE(c.optim.nesterov);
  EXPECT_THAT(c.notes.front(), HasSubstr("optim.momentum = 0.9"));
  EXPECT_EQ(chosen({"sync.codec=topk", "optim.momentum=0.9"}).optim.momentum, 0.9);
  expect_refused({"sync.codec=dgc", "optim.momentum=0.9", "optim.dampening=0.1"}, "optim.dampening");
}

}  // namespace
}  // namespace trireme::train

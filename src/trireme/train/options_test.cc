#include "trireme/train/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::train {
namespace {
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

codec::CodecSet codecs() {
  return codec::built_in_codecs();
}

constexpr const char* kMinimal = "[model]\ngraph = 'm.pt2'\n[data]\npath = 'book.txt'\n";

Config parse(const std::string& text) {
  Config config;
  OptionList list;
  config.list(list);
  list.read_toml_text(text, "job.toml");
  config.check(codecs());
  return config;
}

// `change` is applied to the smallest complete configuration.
void expect_refused(const std::vector<std::string>& changes, const std::string& part) {
  Config config;
  OptionList list;
  config.list(list);
  list.read_toml_text(kMinimal, "job.toml");
  try {
    for (const auto& change : changes) list.set(change);
    config.check(codecs());
    ADD_FAILURE() << "accepted; expected: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

TEST(Config, GraphAndDataAreEnough) {
  const auto config = parse(kMinimal);
  EXPECT_EQ(config.model.graph, "m.pt2");
  EXPECT_EQ(config.optim.kind, "sgd");
  EXPECT_EQ(config.sync.codec, "none");
}

TEST(Config, ChangedKeysWithoutEffectAreNamed) {
  const auto idle = [](const std::string& more, int world) {
    return parse(kMinimal + more).without_effect(world);
  };
  EXPECT_THAT(idle("", 1), IsEmpty());
  EXPECT_THAT(idle("[optim]\nbetas = [0.9, 0.999]\n", 1), IsEmpty())
      << "the default, as a run's config.toml has it";
  EXPECT_THAT(idle("[optim]\nbetas = [0.8, 0.9]\neps = 1e-3\nfinal_lr_share = 0.5\n", 1),
              ElementsAre(HasSubstr("optim.betas has no effect with optim.kind = \"sgd\""),
                          HasSubstr("optim.eps"), HasSubstr("optim.final_lr_share")));
  EXPECT_THAT(idle("[optim]\nkind = 'adam'\nbetas = [0.8, 0.9]\n", 1), IsEmpty());
  EXPECT_THAT(idle("context = 9\ndtype = 'uint32'\n", 1), ElementsAre(HasSubstr("data.dtype")));
  EXPECT_THAT(idle("context = 9\nkind = 'safetensors'\n", 1), ElementsAre(HasSubstr("data.context")));
  const std::string network = "[transport]\nsecret_file = 's'\ninterface = 'eth0'\nconnections = 3\n";
  EXPECT_THAT(idle(network, 1), SizeIs(3));
  EXPECT_THAT(idle(network, 2), IsEmpty());
}

TEST(Config, EveryPublicKeyIsRead) {
  const auto config = parse(R"(
[model]
graph = "m.pt2"
weights = "w.safetensors"
freeze = ["^embed"]
[data]
kind = "idx"
images = "i.gz"
labels = "l.gz"
shuffle = false
eval_share = 0.1
[optim]
kind = "adamw"
lr = 2e-3
betas = [0.8, 0.95]
eps = 1e-6
weight_decay = 0.1
no_decay = ["bias$"]
schedule = "cosine"
warmup = 10
[[optim.group]]
match = "^head"
lr = 1e-4
[train]
steps = 7
batch_per_rank = 3
seed = 5
accumulate = 2
clip_norm = 1
eval_every = 4
checkpoint_every = 5
keep_last = 2
device = "cpu"
check_replicas = true
[sync]
strategy = "two_phase"
codec = "bf16"
error_feedback = false
min_bytes = "64KiB"
[shard]
strategy = "none"
[precision]
param = "fp32"
reduce = "bf16"
output = "fp32"
[transport]
kind = "ucx"
interface = "eth0"
connections = 2
rate_limit = "100mbit"
latency = "1ms"
)");
  EXPECT_EQ(config.optim.betas, (std::vector<double>{0.8, 0.95}));
  EXPECT_EQ(config.optim.weight_decay, 0.1);
  ASSERT_EQ(config.optim.groups.size(), 1u);
  EXPECT_EQ(config.optim.groups[0].lr, 1e-4);
  EXPECT_EQ(config.optim.groups[0].weight_decay, std::nullopt);
  EXPECT_EQ(config.train.accumulate, 2);
  EXPECT_EQ(config.sync.min_bytes.value, 65536);
  EXPECT_EQ(config.sync.error_feedback, "false");
  EXPECT_EQ(config.transport.interface_name, "eth0");
  EXPECT_EQ(config.transport.rate_limit.bytes_per_second, 1.25e7);
}

TEST(Config, PartsThatDoNotExistAreRefusedByName) {
  expect_refused({"shard.strategy=full"}, "shard.strategy = \"full\": must be none");
  expect_refused({"shard.offload=true"}, "unknown key shard.offload");
  expect_refused({"plan.file=plan.json"}, "plan.file");
  expect_refused({"sync.strategy=tree"},
                 "sync.strategy = \"tree\": must be auto | ring | two_phase | gather | off");
  expect_refused({"sync.codec=onebits"}, "sync.codec: unknown codec 'onebits', did you mean 'onebit'?");
  expect_refused({"sync.codec=bf16", "sync.codec_options={block=256}"},
                 "sync.codec_options of bf16: unknown key block");
  expect_refused({"sync.error_feedback=yes"}, "sync.error_feedback = \"yes\": must be auto | true | false");
  expect_refused({"precision.param=bf16"}, "precision.param = \"bf16\": must be fp32");
  expect_refused({"precision.reduce=fp8"}, "precision.reduce = \"fp8\": must be fp32 | bf16");
}

TEST(Config, MissingValuesAreNamed) {
  expect_refused({"model.graph="}, "model.graph is not set");
  expect_refused({"data.path="}, "data.path is not set");
  expect_refused({"data.kind=idx", "data.path=", "data.images=i"}, "data.labels is not set");
  expect_refused({"data.kind=idx", "data.path=", "data.labels=l"}, "data.images is not set");
  expect_refused({"data.kind=idx", "data.path=", "data.images=i", "data.labels=l", "data.eval_images=e"},
                 "data.eval_labels is not set");
  expect_refused({"optim.group=[{lr=1}]"}, "optim.group.match is not set");
}

TEST(Config, ValuesThatContradictEachOtherAreNamed) {
  expect_refused({"data.images=i"}, "data.images belongs to data.kind = \"idx\", not \"bytes\"");
  expect_refused({"data.kind=idx", "data.images=i", "data.labels=l"}, "data.path");
  expect_refused({"data.kind=idx", "data.path=", "data.images=i", "data.labels=l", "data.eval_path=e"},
                 "data.eval_path");
  expect_refused({"data.eval_share=0.1", "data.eval_path=e"}, "data.eval_share");
  expect_refused({"train.eval_every=5"}, "train.eval_every: nothing to evaluate on");
  expect_refused({"optim.betas=[0.9]"}, "optim.betas");
  expect_refused({"optim.betas=[0.9, 1]"}, "optim.betas");
  expect_refused({"optim.kind=adam", "optim.momentum=0.9"}, "optim.momentum");
  expect_refused({"optim.nesterov=true"}, "optim.nesterov needs optim.momentum");
}

TEST(Config, PatternsMustBeRegularExpressions) {
  expect_refused({"model.freeze=['(']"}, "model.freeze: '(' is not a regular expression");
  expect_refused({"optim.no_decay=['[']"}, "optim.no_decay: '[' is not a regular expression");
  expect_refused({"optim.group=[{match='*'}]"}, "optim.group.match: '*' is not a regular expression");
}

TEST(Config, InterfaceIsNotComparedBetweenRanks) {
  const auto digest = [](const std::string& change) {
    Config config;
    OptionList list;
    config.list(list);
    list.read_toml_text(kMinimal, "job.toml");
    list.set(change);
    return list.digest_text();
  };
  EXPECT_EQ(digest("transport.interface=eth0"), digest("transport.interface=eth1"));
  EXPECT_EQ(digest("train.threads=1"), digest("train.threads=2"));
  EXPECT_NE(digest("train.seed=1"), digest("train.seed=2"));
  EXPECT_NE(digest("optim.group=[{match='a'}]"), digest("optim.group=[{match='b'}]"));
}

}  // namespace
}  // namespace trireme::train

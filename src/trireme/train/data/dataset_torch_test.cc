#include "trireme/train/data/dataset_torch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "trireme/base/error.h"
#include "trireme/tensor/safetensors.h"
#include "trireme/train/data/gzip.h"

namespace trireme::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kBook = TRIREME_DATA_FOLDER "/moby-dick.txt.gz";
const std::string kDigits = TRIREME_DATA_FOLDER "/mnist10k-test-";

// A graph with user inputs alone; the first dimension is symbolic.
spec::Graph graph_with(const std::vector<std::pair<std::string, spec::Dtype>>& names,
                       const std::vector<spec::Shape>& samples) {
  spec::Graph graph;
  for (size_t i = 0; i < names.size(); ++i) {
    spec::Value value{.name = names[i].first, .dtype = names[i].second, .sizes = {{2, "s0"}}};
    for (const int64_t extent : samples[i]) value.sizes.push_back({extent, ""});
    graph.inputs.push_back({spec::InputKind::user, static_cast<spec::ValueId>(i), names[i].first});
    graph.values.push_back(value);
  }
  return graph;
}

spec::Graph byte_graph(int64_t context) {
  return graph_with({{"tokens", spec::Dtype::i64}, {"targets", spec::Dtype::i64}}, {{context}, {context}});
}

spec::Graph digit_graph() {
  return graph_with({{"images", spec::Dtype::f32}, {"labels", spec::Dtype::i64}}, {{1, 28, 28}, {}});
}

DataOptions book(int64_t context) {
  return {.kind = "bytes", .path = kBook, .context = context};
}

DataOptions digits() {
  return {
      .kind = "idx", .images = kDigits + "images-idx3-ubyte.gz", .labels = kDigits + "labels-idx1-ubyte.gz"};
}

std::string temporary(const std::string& suffix) {
  return ::testing::TempDir() + ::testing::UnitTest::GetInstance()->current_test_info()->name() + suffix;
}

template <typename T>
std::string write_values(const std::vector<T>& values) {
  const std::string path = temporary(".bin");
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(T)));
  return path;
}

template <typename T>
std::vector<T> values_of(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<T>(), tensor.const_data_ptr<T>() + tensor.numel()};
}

Error error_of(const DataOptions& options, const spec::Graph& graph) {
  try {
    open_datasets(options, graph);
  } catch (const Error& error) {
    return error;
  }
  return {ErrorCode::internal, "accepted"};
}

TEST(Bytes, SampleIsTheWindowAndTheWindowOneLater) {
  const auto data = open_datasets(book(64), byte_graph(64));
  const FileBytes text(kBook);
  EXPECT_EQ(data.training->samples(), static_cast<int64_t>((text.bytes().size() - 1) / 64));
  EXPECT_EQ(data.evaluation, nullptr);
  const int64_t last = data.training->samples() - 1;
  const auto batch = data.training->batch(std::vector<int64_t>{3, last});
  ASSERT_EQ(batch.size(), 2U);
  EXPECT_THAT(batch[0].sizes(), ElementsAre(2, 64));
  const auto windows = values_of<int64_t>(batch[0]), next = values_of<int64_t>(batch[1]);
  for (size_t i = 0; i < 64; ++i) {
    EXPECT_EQ(windows[i], std::to_integer<int64_t>(text.bytes()[3 * 64 + i]));
    EXPECT_EQ(next[64 + i], std::to_integer<int64_t>(text.bytes()[static_cast<size_t>(last) * 64 + i + 1]));
  }
}

TEST(Bytes, EvalShareHoldsOutTheEnd) {
  auto options = book(128);
  const auto whole = open_datasets(options, byte_graph(128));
  options.eval_share = 0.1;
  const auto split = open_datasets(options, byte_graph(128));
  const int64_t all = whole.training->samples();
  EXPECT_EQ(split.evaluation->samples(), all / 10);
  EXPECT_EQ(split.training->samples(), all - all / 10);
  const std::vector<int64_t> first{0}, same{all - all / 10};
  EXPECT_TRUE(split.evaluation->batch(first)[0].equal(whole.training->batch(same)[0]));
}

TEST(Bytes, EvalPathIsASecondFile) {
  auto options = book(128);
  options.eval_path = write_values(std::vector<uint8_t>(300, 7));
  const auto data = open_datasets(options, byte_graph(128));
  EXPECT_EQ(data.evaluation->samples(), 2);
}

TEST(Tokens, ReadsBothWidths) {
  auto options = book(2);
  options.kind = "tokens";
  options.path = write_values(std::vector<uint16_t>{1, 50000, 3, 4, 5, 6});
  EXPECT_THAT(values_of<int64_t>(
                  open_datasets(options, byte_graph(2)).training->batch(std::vector<int64_t>{0, 1})[1]),
              ElementsAre(50000, 3, 4, 5));
  options.path = write_values(std::vector<uint32_t>{1, 3'000'000'000, 3});
  options.dtype = "uint32";
  EXPECT_THAT(
      values_of<int64_t>(open_datasets(options, byte_graph(2)).training->batch(std::vector<int64_t>{0})[0]),
      ElementsAre(1, 3'000'000'000));
}

TEST(Tokens, RefusesAFileThatIsNoWholeNumberOfTokens) {
  auto options = book(2);
  options.kind = "tokens";
  options.path = write_values(std::vector<uint8_t>(7, 0));
  EXPECT_THAT(error_of(options, byte_graph(2)).what(), HasSubstr("no whole number of 2-byte tokens"));
}

TEST(Digits, ImagesAreScaledAndLabelsCounted) {
  const auto data = open_datasets(digits(), digit_graph());
  EXPECT_EQ(data.training->samples(), 2000);
  const auto batch = data.training->batch(std::vector<int64_t>{5, 1999, 0});
  EXPECT_THAT(batch[0].sizes(), ElementsAre(3, 1, 28, 28));
  EXPECT_THAT(batch[1].sizes(), ElementsAre(3));
  const auto pixels = values_of<float>(batch[0]);
  EXPECT_EQ(*std::ranges::min_element(pixels), 0.0F);
  EXPECT_LE(*std::ranges::max_element(pixels), 1.0F);
  EXPECT_GT(*std::ranges::max_element(pixels), 0.9F);
  for (const int64_t label : values_of<int64_t>(batch[1])) EXPECT_TRUE(label >= 0 && label < 10);
}

TEST(Digits, RefusesFilesThatDoNotBelongTogether) {
  auto options = digits();
  options.labels = TRIREME_DATA_FOLDER "/mnist10k-train-labels-idx1-ubyte.gz";
  EXPECT_THAT(error_of(options, digit_graph()).what(), HasSubstr("8000 labels for the 2000 images"));
  options.labels = options.images;
  EXPECT_THAT(error_of(options, digit_graph()).what(), HasSubstr("labels have 1 dimension"));
  options.labels = "";
  EXPECT_EQ(error_of(options, digit_graph()).code(), ErrorCode::usage);
  EXPECT_THAT(error_of(options, digit_graph()).what(), HasSubstr("data.labels"));
}

TEST(Graph, InputsThatTheDataDoesNotFitAreNamed) {
  EXPECT_THAT(
      error_of(book(64), byte_graph(128)).what(),
      HasSubstr(
          "data.context = 64 gives i64 [B, 64] for the graph's input 'tokens', which takes i64 [B, 128]"));
  EXPECT_THAT(error_of(book(64), digit_graph()).what(),
              HasSubstr("'images', which takes f32 [B, 1, 28, 28]"));
  EXPECT_THAT(error_of(digits(), byte_graph(28)).what(), HasSubstr("gives f32 [B, 1, 28, 28]"));
  const auto single = graph_with({{"tokens", spec::Dtype::i64}}, {{64}});
  EXPECT_THAT(error_of(book(64), single).what(), HasSubstr("gives 2 inputs"));
}

class SafetensorsData : public ::testing::Test {
 protected:
  SafetensorsData() {
    tensor::write_safetensors(path_,
                              {{"x", {spec::Dtype::f32, {3, 2}, std::as_bytes(std::span(x_))}},
                               {"y", {spec::Dtype::i64, {3}, std::as_bytes(std::span(y_))}},
                               {"short", {spec::Dtype::i64, {2}, std::as_bytes(std::span(y_).first(2))}},
                               {"scalar", {spec::Dtype::i64, {}, std::as_bytes(std::span(y_).first(1))}}});
  }
  DataOptions options() const { return {.kind = "safetensors", .path = path_}; }
  std::string refusal(const std::string& second, spec::Dtype first_dtype, const spec::Shape& first_sample) {
    const auto graph = graph_with({{"x", first_dtype}, {second, spec::Dtype::i64}}, {first_sample, {}});
    const Error error = error_of(options(), graph);
    EXPECT_EQ(error.code(), ErrorCode::input);
    EXPECT_THAT(error.what(), HasSubstr(path_));
    return error.what();
  }
  std::vector<float> x_{1, 2, 3, 4, 5, 6};
  std::vector<int64_t> y_{10, 20, 30};
  std::string path_ = temporary(".safetensors");
};

TEST_F(SafetensorsData, RowsAreTakenByInputName) {
  const auto graph = graph_with({{"y", spec::Dtype::i64}, {"x", spec::Dtype::f32}}, {{}, {2}});
  const auto data = open_datasets(options(), graph);
  EXPECT_EQ(data.training->samples(), 3);
  const auto batch = data.training->batch(std::vector<int64_t>{2, 0});
  EXPECT_THAT(values_of<int64_t>(batch[0]), ElementsAre(30, 10));
  EXPECT_THAT(values_of<float>(batch[1]), ElementsAre(5, 6, 1, 2));
}

TEST_F(SafetensorsData, WhatDoesNotFitIsNamed) {
  EXPECT_THAT(refusal("yy", spec::Dtype::f32, {2}), HasSubstr("no tensor 'yy'"));
  EXPECT_THAT(refusal("short", spec::Dtype::f32, {2}),
              HasSubstr("'short' has 2 samples, those before have 3"));
  EXPECT_THAT(refusal("scalar", spec::Dtype::f32, {2}), HasSubstr("'scalar' is a scalar"));
  EXPECT_THAT(refusal("y", spec::Dtype::f64, {2}), HasSubstr("tensor 'x' gives f32 [B, 2]"));
  EXPECT_THAT(refusal("y", spec::Dtype::f32, {3}), HasSubstr("which takes f32 [B, 3]"));
}

TEST(Files, BadOnesAreNamed) {
  auto options = book(64);
  options.path = "/nowhere/book.txt";
  EXPECT_THAT(error_of(options, byte_graph(64)).what(), HasSubstr("/nowhere/book.txt"));
  options.path = ::testing::TempDir();
  EXPECT_THAT(error_of(options, byte_graph(64)).what(), HasSubstr("folder"));
  options.path = write_values(std::vector<uint8_t>(64, 0));
  EXPECT_THAT(error_of(options, byte_graph(64)).what(), HasSubstr("64 tokens are too few for one window"));
  options.path = "";
  EXPECT_EQ(error_of(options, byte_graph(64)).code(), ErrorCode::usage);
  options = book(64);
  options.eval_share = 1e-9;
  EXPECT_THAT(error_of(options, byte_graph(64)).what(), HasSubstr("leaves nothing to evaluate on"));
  options.eval_share = 0.1;
  options.eval_path = kBook;
  EXPECT_THAT(error_of(options, byte_graph(64)).what(), HasSubstr("leave one out"));
}

}  // namespace
}  // namespace trireme::train

#include "trireme/tensor/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "trireme/base/error.h"

namespace trireme::tensor {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

class SafetensorsTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path file(const std::string& name) const { return folder_ / name; }

  // A file with this header and these data bytes.
  std::filesystem::path raw(const std::string& header, const std::string& data = "") const {
    const auto path = file("raw.safetensors");
    std::ofstream out(path, std::ios::binary);
    const uint64_t length = header.size();
    out.write(reinterpret_cast<const char*>(&length), sizeof length) << header << data;
    return path;
  }
  static void expect_refused(const std::filesystem::path& path, const std::string& what) {
    EXPECT_THAT([&] { SafetensorsFile{path}; },
                ThrowsMessage<Error>(AllOf(HasSubstr(path.string()), HasSubstr(what))));
  }

  std::filesystem::path folder_ = testing::TempDir() + "safetensors_test_" + std::to_string(::getpid());
};

template <typename T>
SafetensorsEntry entry(spec::Dtype dtype, spec::Shape shape, const std::vector<T>& values) {
  return {dtype, std::move(shape), std::as_bytes(std::span(values))};
}

TEST_F(SafetensorsTest, ReadsBackWhatWasWritten) {
  const std::vector<float> weights{1, 2, 3, 4, 5, 6};
  const std::vector<int64_t> steps{7};
  const std::vector<uint8_t> mask{1, 0, 1};
  const std::vector<float> none;
  write_safetensors(file("m.safetensors"),
                    {{"w", entry(spec::Dtype::f32, {2, 3}, weights)},
                     {"steps", entry(spec::Dtype::i64, {}, steps)},
                     {"a mask", entry(spec::Dtype::boolean, {3}, mask)},
                     {"none", entry(spec::Dtype::f32, {0, 4}, none)}},
                    {{"format", "pt"}});
  const SafetensorsFile read(file("m.safetensors"));
  ASSERT_EQ(read.entries().size(), 4U);
  const auto& w = read.entries().at("w");
  EXPECT_EQ(w.shape, (spec::Shape{2, 3}));
  EXPECT_EQ(std::memcmp(w.bytes.data(), weights.data(), w.bytes.size()), 0);
  EXPECT_EQ(read.entries().at("steps").shape, spec::Shape{});
  EXPECT_EQ(read.entries().at("a mask").dtype, spec::Dtype::boolean);
  EXPECT_TRUE(read.entries().at("none").bytes.empty());
  EXPECT_EQ(read.metadata().at("format"), "pt");
}

TEST_F(SafetensorsTest, AlignsEachTensorToItsElement) {
  const std::vector<uint8_t> bytes{1};
  const std::vector<double> wide{1, 2};
  write_safetensors(file("m.safetensors"),
                    {{"a", entry(spec::Dtype::u8, {1}, bytes)}, {"b", entry(spec::Dtype::f64, {2}, wide)}});
  const SafetensorsFile read(file("m.safetensors"));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(read.entries().at("b").bytes.data()) % 8, 0U);
}

TEST_F(SafetensorsTest, RefusesWhatIsNotASafetensorsFile) {
  std::ofstream(file("empty")).close();
  expect_refused(file("empty"), "empty");
  std::ofstream(file("short")) << "abc";
  expect_refused(file("short"), "not a safetensors file");
  std::ofstream(file("noise")) << std::string(100, '\x7f');
  expect_refused(file("noise"), "not a safetensors file");
  expect_refused(raw("[]"), "not a JSON object");
  expect_refused(raw("{\"w\":"), "broken header");
  expect_refused(raw("{\"w\": 3}"), "broken header");
  expect_refused(raw("{\"w\": " + std::string(100000, '[')), "nested");
  EXPECT_THROW(SafetensorsFile{folder_}, Error);
  EXPECT_THROW(SafetensorsFile{file("missing")}, Error);
}

TEST_F(SafetensorsTest, RefusesDataThatDoesNotMatchItsHeader) {
  const std::string four = R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  expect_refused(raw("{\"w\":" + four + "}", "abc"), "truncated");
  expect_refused(raw("{\"w\":" + four + "}", "abcdefgh"), "unused bytes after the last tensor");
  expect_refused(raw("{\"w\":" + four + ",\"w\":" + four + "}", "abcd"), "occurs twice");
  expect_refused(raw("{\"w\":" + four + ",\"v\":" + four + "}", "abcd"), "overlaps");
  expect_refused(raw(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "abcdefgh"),
                 "unused bytes before");
  expect_refused(raw(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "abcd"),
                 "do not match shape");
  expect_refused(raw(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", "abcd"), "outside");
  expect_refused(raw(R"({"w":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", "abcd"), "not a size");
  expect_refused(raw(R"({"w":{"dtype":"F4","shape":[1],"data_offsets":[0,4]}})", "abcd"), "F4");
  expect_refused(raw(R"({"w":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,4]}})", "abcd"),
                 "w");
}

TEST_F(SafetensorsTest, EveryTruncationIsRefused) {
  const std::vector<float> weights{1, 2, 3};
  write_safetensors(file("m.safetensors"), {{"w", entry(spec::Dtype::f32, {3}, weights)}});
  const std::string whole = read_file(file("m.safetensors"));
  for (size_t size = 0; size < whole.size(); ++size) {
    std::ofstream(file("cut"), std::ios::binary) << whole.substr(0, size);
    EXPECT_THROW(SafetensorsFile{file("cut")}, Error) << size;
  }
}

TEST_F(SafetensorsTest, AFailedWriteLeavesTheOldFileAndNothingElse) {
  const std::vector<float> old{1};
  const auto path = file("m.safetensors");
  write_safetensors(path, {{"w", entry(spec::Dtype::f32, {1}, old)}});
  EXPECT_THAT(
      [&] { write_safetensors(file("missing/m.safetensors"), {}); },
      ThrowsMessage<Error>(AllOf(HasSubstr("m.safetensors"), HasSubstr("No such file or directory"))));
  // The target is a folder: the rename fails after all bytes were written.
  std::filesystem::create_directories(file("folder/inside"));
  EXPECT_THROW(write_safetensors(file("folder"), {{"w", entry(spec::Dtype::f32, {1}, old)}}), Error);
  EXPECT_EQ(SafetensorsFile(path).entries().size(), 1U);
  size_t files = 0;
  for (const auto& e : std::filesystem::directory_iterator(folder_)) files += e.is_regular_file();
  EXPECT_EQ(files, 1U) << "a temporary file was left";
}

}  // namespace
}  // namespace trireme::tensor

#include "trireme/stats/bits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/stats/covariance.h"
#include "trireme/stats/quantiser.h"
#include "trireme/stats/test_data.h"

namespace trireme::stats {
namespace {

using namespace testing;
using ::testing::HasSubstr;

class BitsFile : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              (std::string("trireme_bits_") +
               ::testing::UnitTest::GetInstance()->current_test_info()->name() + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string message_of_reading(const std::string& content) {
    const auto path = folder_ / "broken.bits";
    std::ofstream(path, std::ios::binary) << content;
    try {
      BitsReader reader(path);
      BitMatrix block;
      while (reader.next(block)) {
      }
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr("broken.bits"));
      return e.what();
    }
    return "nothing thrown";
  }
  std::filesystem::path folder_;
};

TEST_F(BitsFile, ReadsBackBlockByBlockAndMerges) {
  Dense x = block_data(700, 8, 3);
  x(5, 5) = std::nan("");
  CodeBook book = book_of(Scheme::triangular, 8, 3);
  book.centre.assign(8, 0.125);
  const BitMatrix first = quantise(row_major(x.values.data(), 300, 8), book, {.seed = 4}, Missing::mask);
  const BitMatrix second =
      quantise(row_major(&x.values[300 * 8], 400, 8), book, {.seed = 4, .first_row = 300}, Missing::mask);
  BitsWriter writer(folder_ / "a.bits", book);
  writer.append(first);
  writer.append(second);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "a.bits"));
  writer.close();

  BitsReader reader(folder_ / "a.bits");
  EXPECT_EQ(reader.book(), book);
  BitMatrix block;
  CovarianceCounts counts(book);
  ASSERT_TRUE(reader.next(block));
  EXPECT_EQ(block, first);
  counts.add(block);
  ASSERT_TRUE(reader.next(block));
  EXPECT_EQ(block, second);
  counts.add(block);
  EXPECT_FALSE(reader.next(block));

  CovarianceCounts whole(book);
  whole.add(quantise(view(x), book, {.seed = 4}, Missing::mask));
  EXPECT_EQ(whole, counts);
}

TEST_F(BitsFile, DamageIsNamed) {
  const CodeBook book = book_of(Scheme::one_bit, 3, 1);
  BitsWriter writer(folder_ / "good.bits", book);
  writer.append(quantise(view(normal_matrix(100, 3, 1)), book, {}));
  writer.close();
  const std::string good = read_file(folder_ / "good.bits");
  EXPECT_EQ(message_of_reading(good), "nothing thrown");
  EXPECT_THAT(message_of_reading(""), HasSubstr("wrong first bytes"));
  EXPECT_THAT(message_of_reading("x,y\n1,2\n"), HasSubstr("wrong first bytes"));
  EXPECT_THAT(message_of_reading(good.substr(0, 40)), HasSubstr("cut short in header"));
  for (size_t cut = good.size() - 1; cut > good.size() - 200; cut -= 7)
    EXPECT_THAT(message_of_reading(good.substr(0, cut)), HasSubstr("cut short in block 0"));
  std::string flipped = good;
  flipped[flipped.size() - 3 * 64] ^= 1;
  EXPECT_THAT(message_of_reading(flipped), HasSubstr("checksum"));
  std::string newer = good;
  newer.replace(newer.find("\"version\":1"), 11, "\"version\":7");
  EXPECT_THAT(message_of_reading(newer), HasSubstr("version 7"));
}

TEST_F(BitsFile, AnUnclosedWriterLeavesNothing) {
  { BitsWriter writer(folder_ / "b.bits", book_of(Scheme::one_bit, 3, 1)); }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

}  // namespace
}  // namespace trireme::stats

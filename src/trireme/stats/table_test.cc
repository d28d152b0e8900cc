#include "trireme/stats/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "trireme/base/error.h"

namespace trireme::stats {
namespace {

using ::testing::HasSubstr;

template <typename Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing thrown";
}

TEST(Table, CsvWithNamesGapsAndWindowsLines) {
  const Dense t = parse_csv("a,\"b\"\r\n1, 2\r\n,-3e2\r\nnan,+4\r\n\r\n", "t.csv");
  ASSERT_EQ(t.rows, 3u);
  ASSERT_EQ(t.cols, 2u);
  EXPECT_EQ(t(0, 1), 2);
  EXPECT_EQ(t(1, 1), -300);
  EXPECT_EQ(t(2, 1), 4);
  EXPECT_TRUE(std::isnan(t(1, 0)) && std::isnan(t(2, 0)));
}

TEST(Table, CsvErrorsNameTheLine) {
  EXPECT_THAT(message_of([] { parse_csv("1,2\n3,x\n", "t.csv"); }),
              HasSubstr("t.csv:2: \"x\" is not a number"));
  EXPECT_THAT(message_of([] { parse_csv("1,2\n3\n", "t.csv"); }), HasSubstr("t.csv:2: 1 fields"));
  EXPECT_THAT(message_of([] { parse_csv("a,b\n", "t.csv"); }), HasSubstr("no rows"));
}

TEST(Table, NpyReadsBackWhatItWrites) {
  Dense t(3, 2);
  t.values = {1, 2, 3, 4, 5, 6};
  const std::string bytes = to_npy(t);
  EXPECT_EQ(bytes.size() % 64, 48u);  // header padded to 64, then 48 bytes of data
  EXPECT_EQ(parse_npy(bytes, "t.npy"), t);
  Dense column(4, 1, 2.5);
  EXPECT_EQ(parse_npy(to_npy(column), "t.npy"), column);
  EXPECT_THAT(message_of([&] { parse_npy(bytes.substr(0, bytes.size() - 1), "t.npy"); }),
              HasSubstr("cut short"));
  EXPECT_THAT(message_of([&] { parse_npy("hello, world", "t.npy"); }), HasSubstr("not a .npy"));
  std::string other = bytes;
  other.replace(other.find("<f8"), 3, "<c8");
  EXPECT_THAT(message_of([&] { parse_npy(other, "t.npy"); }), HasSubstr("element type <c8"));
  std::string columns = bytes;
  columns.replace(columns.find("False"), 5, "True ");
  EXPECT_EQ(parse_npy(columns, "t.npy")(0, 1), 4);
}

}  // namespace
}  // namespace trireme::stats

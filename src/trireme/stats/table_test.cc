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
  EXPECT_EQ(parse_npy(bytes, "t.npy"), (Table{t, false}));
  Dense column(4, 1, 2.5);
  EXPECT_EQ(parse_npy(to_npy(column), "t.npy").values, column);
  EXPECT_THAT(message_of([&] { parse_npy(bytes.substr(0, bytes.size() - 1), "t.npy"); }),
              HasSubstr("cut short"));
  EXPECT_THAT(message_of([&] { parse_npy("hello, world", "t.npy"); }), HasSubstr("not a .npy"));
  std::string other = bytes;
  other.replace(other.find("<f8"), 3, "|O8");
  EXPECT_THAT(message_of([&] { parse_npy(other, "t.npy"); }), HasSubstr("element type |O8"));
  for (const char* key : {"'descr'", "'shape'", "'fortran_order'"}) {
    std::string without = bytes;
    without.replace(without.find(key) + 1, 1, "_");
    EXPECT_THAT(message_of([&] { parse_npy(without, "t.npy"); }), HasSubstr("in the .npy header")) << key;
  }
  std::string columns = bytes;
  columns.replace(columns.find("False"), 5, "True ");
  EXPECT_EQ(parse_npy(columns, "t.npy").values(0, 1), 4);
}

TEST(Table, ComplexNpyIsReadAsRealThenImaginaryParts) {
  ComplexDense filled{Dense(2, 2), Dense(2, 2)};
  filled.real.values = {1, 2, 3, 4};
  filled.imaginary.values = {5, 6, 7, 8};
  const std::string bytes = to_npy(filled);
  const Table t = parse_npy(bytes, "t.npy");
  EXPECT_TRUE(t.complex);
  EXPECT_THAT(t.values.values, ::testing::ElementsAre(1, 2, 5, 6, 3, 4, 7, 8));
  EXPECT_THAT(message_of([&] { parse_npy(bytes.substr(0, bytes.size() - 8), "t.npy"); }),
              HasSubstr("cut short"));
}

}  // namespace
}  // namespace trireme::stats

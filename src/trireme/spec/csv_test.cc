#include "trireme/spec/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::spec {
namespace {

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.code()), 2);
    return error.what();
  }
  return "";
}

TEST(Csv, ReadsQuotedFieldsCommentsAndBlankLines) {
  const auto table =
      CsvTable::parse("a, b\r\n# a remark, with commas, and more\n\n\"x, \"\"y\"\"\",2.5\n", "t.csv");
  ASSERT_EQ(table.rows(), 1U);
  EXPECT_EQ(table.text(0, table.column("a")), "x, \"y\"");
  EXPECT_EQ(table.number(0, table.column("b")), 2.5);
  EXPECT_EQ(table.where(0), "t.csv:4");
}

TEST(Csv, AQuotedFieldMaySpanLines) {
  const auto table = CsvTable::parse("a,b\n\"1\n2\",3\n4,5\n", "t.csv");
  ASSERT_EQ(table.rows(), 2U);
  EXPECT_EQ(table.where(1), "t.csv:4");
}

TEST(Csv, RefusalsNameFileLineAndColumn) {
  EXPECT_EQ(refusal([] { CsvTable::parse("", "t.csv"); }),
            "t.csv: empty; its first line must name the columns");
  EXPECT_EQ(refusal([] { CsvTable::parse("a,a\n", "t.csv"); }), "t.csv:1: column a is there twice");
  EXPECT_EQ(refusal([] { CsvTable::parse("a,b\n1\n", "t.csv"); }),
            "t.csv:2: 1 fields, but the line of names has 2");
  EXPECT_EQ(refusal([] { CsvTable::parse("a\n\"x\n", "t.csv"); }), "t.csv:2: a quote that does not end");
  const auto table = CsvTable::parse("a,b\nnan,1.5\n", "t.csv");
  EXPECT_EQ(refusal([&] { table.number(0, 0); }), "t.csv:2: a = nan: must be a finite number");
  EXPECT_EQ(refusal([&] { table.whole_number(0, 1); }), "t.csv:2: b = 1.5: must be a whole number");
  EXPECT_EQ(refusal([&] { table.column("c"); }), "t.csv: no column c; there are a, b");
}

}  // namespace
}  // namespace trireme::spec

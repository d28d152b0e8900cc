#include "trireme/base/units.h"

#include <gtest/gtest.h>

#include <cmath>

#include "trireme/base/error.h"
#include "trireme/base/rng.h"

namespace trireme {
namespace {

TEST(Units, SizesTakeDecimalAndBinarySuffixes) {
  EXPECT_EQ(parse_bytes("123").value, 123);
  EXPECT_EQ(parse_bytes("5MB").value, 5'000'000);
  EXPECT_EQ(parse_bytes(" 4 KiB ").value, 4096);
  EXPECT_EQ(parse_bytes("1.5GiB").value, 1'610'612'736);
  EXPECT_EQ(parse_bytes("9223372036854775807").value, INT64_MAX);
}

TEST(Units, RatesTakeBitsOrBytesPerSecond) {
  EXPECT_EQ(parse_rate("1gbit").bytes_per_second, 1.25e8);
  EXPECT_EQ(parse_rate("100mbit").bytes_per_second, 1.25e7);
  EXPECT_EQ(parse_rate("8kbit").bytes_per_second, 1000);
  EXPECT_EQ(parse_rate("10GB").bytes_per_second, 1e10);
  EXPECT_EQ(parse_rate("0").bytes_per_second, 0);
}

TEST(Units, TimesAreSecondsUnlessTheySayOtherwise) {
  EXPECT_EQ(parse_seconds("0.2ms").value, 0.0002);
  EXPECT_EQ(parse_seconds("25us").value, 25e-6);
  EXPECT_EQ(parse_seconds("3s").value, 3);
  EXPECT_EQ(parse_seconds("1.5").value, 1.5);
}

template <typename F>
void expect_refused(F parse, const std::string& text, const std::string& hint) {
  try {
    parse(text);
    ADD_FAILURE() << "accepted '" << text << "'";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    EXPECT_NE(std::string(error.what()).find(hint), std::string::npos) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
  }
}

TEST(Units, WhatIsNotAQuantityIsRefusedWithTheSpellings) {
  for (const char* text : {"", "MB", "-1", "1.5", "5 MBit", "nan", "inf", "1e30", "0x10", "5MB/s", "1,000"}) {
    expect_refused(&parse_bytes, text, "MiB");
  }
  for (const char* text : {"", "fast", "-1gbit", "1gbps", "1e400gbit"})
    expect_refused(&parse_rate, text, "gbit");
  for (const char* text : {"", "soon", "-1ms", "1min", "nan"}) expect_refused(&parse_seconds, text, "ms");
}

TEST(Units, TextIsReadable) {
  EXPECT_EQ(to_text(Bytes{0}), "0");
  EXPECT_EQ(to_text(Bytes{5'000'000}), "5MB");
  EXPECT_EQ(to_text(Bytes{1 << 20}), "1MiB");
  EXPECT_EQ(to_text(Bytes{1001}), "1001");
  EXPECT_EQ(to_text(Rate{1.25e7}), "100mbit");
  EXPECT_EQ(to_text(Rate{0}), "0");
  EXPECT_EQ(to_text(Seconds{0.0002}), "200us");
  EXPECT_EQ(to_text(Seconds{60}), "60");
}

TEST(Units, TextReadsBackToTheSameValue) {
  PhiloxStream random(1, 0);
  for (int i = 0; i < 2000; ++i) {
    const auto shift = random.next_u32() % 63;
    const Bytes bytes{static_cast<int64_t>(random.next_u64() >> (shift + 1))};
    EXPECT_EQ(parse_bytes(to_text(bytes)), bytes) << bytes.value;
    const Rate rate{random.next_double() * std::pow(10., static_cast<double>(shift) - 20)};
    EXPECT_EQ(parse_rate(to_text(rate)), rate) << rate.bytes_per_second;
    const Seconds seconds{random.next_double() * std::pow(10., static_cast<double>(shift % 12) - 9)};
    EXPECT_EQ(parse_seconds(to_text(seconds)), seconds) << seconds.value;
  }
}

TEST(Units, PeopleGetThreeDigits) {
  EXPECT_EQ(for_people(Bytes{999}), "999 B");
  EXPECT_EQ(for_people(Bytes{43'651'000}), "43.7 MB");
  EXPECT_EQ(for_people(Bytes{999'900}), "1.00 MB");
  EXPECT_EQ(for_people(Rate{114e6}), "912 Mbit/s");
  EXPECT_EQ(for_people(Seconds{0.00125}), "1.25 ms");
  EXPECT_EQ(for_people(Seconds{1234}), "1234 s");
  EXPECT_EQ(for_people(Seconds{0}), "0 ns");
}

}  // namespace
}  // namespace trireme

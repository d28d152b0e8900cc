#pragma once
// Quantities with their unit in the type, and the spellings users write.
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme {

// A count of bytes. Text: a plain number, or KiB/MiB/GiB (powers of 1024), kB/MB/GB (powers of 1000).
struct Bytes {
  int64_t value = 0;
  auto operator<=>(const Bytes&) const = default;
};
// Bytes per second. Text: kbit/mbit/gbit (bits per second, powers of 1000) or a size as above (bytes per
// second). 0 means unlimited.
struct Rate {
  double bytes_per_second = 0;
  auto operator<=>(const Rate&) const = default;
};
// Text: us, ms, s, or a plain number of seconds.
struct Seconds {
  double value = 0;
  auto operator<=>(const Seconds&) const = default;
};

// Each throws Error(usage) that says which spellings are taken. Negative and non-finite values are refused.
Bytes parse_bytes(std::string_view text);
Rate parse_rate(std::string_view text);
Seconds parse_seconds(std::string_view text);

// Text that the parsers read back to the same value.
std::string to_text(Bytes value);
std::string to_text(Rate value);
std::string to_text(Seconds value);

// "43.7 MB", "912 Mbit/s", "1.25 ms": for people, three significant digits.
std::string for_people(Bytes value);
std::string for_people(Rate value);
std::string for_people(Seconds value);

}  // namespace trireme

#pragma once
// Lines on standard error for people. Results go to standard output and are not logged.
#include <string>
#include <string_view>

namespace trireme::log {
enum class Level { debug, info, warning, error };
// Puts "[tag] " before each line, e.g. "rank 1"; called once by main.
void set_tag(std::string_view tag);
void set_level(Level level);
void debug(std::string_view message);
void info(std::string_view message);
void warning(std::string_view message);
void error(std::string_view message);
}  // namespace trireme::log

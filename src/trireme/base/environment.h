#pragma once
// The only file that reads the process environment.
#include <optional>
#include <string>

namespace trireme {
// The variable's value, or nothing when it is unset or empty.
std::optional<std::string> environment(const char* name);
}  // namespace trireme

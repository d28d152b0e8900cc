#pragma once
// The only file that reads the process environment.
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace trireme {
// The variable's value, or nothing when it is unset or empty.
std::optional<std::string> environment(const char* name);
// The whole environment as "NAME=value", with these variables set: for the environment of a child process.
std::vector<std::string> environment_with(const std::map<std::string, std::string>& changes);
}  // namespace trireme

#pragma once
// JSON of other people's files. The parser itself does not recurse, but printing and reading what it made
// does.
#include <string_view>

namespace trireme::spec {

// Error(input) when brackets nest more than 200 deep.
void check_json_depth(std::string_view text);

}  // namespace trireme::spec

#include "trireme/base/json_problem.h"

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"

namespace trireme {

std::string json_problem(const std::exception& error) {
  if (const auto* parse = dynamic_cast<const nlohmann::json::parse_error*>(&error))
    return cat("not valid JSON from byte ", parse->byte, " on (cut short or changed?)");
  // "[json.exception.out_of_range.403] key 'step' not found": the tag helps nobody.
  const std::string text = error.what();
  const auto tag = text.find("] ");
  return text.starts_with('[') && tag != std::string::npos ? text.substr(tag + 2) : text;
}

}  // namespace trireme

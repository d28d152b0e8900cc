#include "report_failure.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "trireme/base/environment.h"
#include "trireme/base/files.h"

namespace trireme::app {

std::string error_file_text(const std::string& message, int64_t seconds_since_epoch) {
  const nlohmann::json file{
      {"message",
       {{"message", message}, {"extraInfo", {{"timestamp", std::to_string(seconds_since_epoch)}}}}}};
  // A message may quote bytes of a broken file.
  return file.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

namespace {
void write_error_file(const std::string& message) {
  const auto path = environment("TORCHELASTIC_ERROR_FILE");
  if (!path) return;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  try {
    write_file(*path,
               error_file_text(message, std::chrono::duration_cast<std::chrono::seconds>(now).count()));
  } catch (const Error&) {
  }
}
}  // namespace

int report_failure(ErrorCode code, std::string message) {
  std::replace(message.begin(), message.end(), '\n', ' ');
  message = cat(name(code), ": ", message);
  std::fprintf(stderr, "trireme: %s\n", message.c_str());
  write_error_file(message);
  return exit_code(code);
}

}  // namespace trireme::app

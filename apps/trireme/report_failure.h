#pragma once
// How the program ends when something went wrong: one line on standard error, and for torchrun a file.
#include <cstdint>
#include <string>

#include "trireme/base/error.h"

namespace trireme::app {

// Prints "trireme: CODE: message" and writes the same where TORCHELASTIC_ERROR_FILE says; a file that cannot
// be written is passed over. Returns the exit code.
int report_failure(ErrorCode code, std::string message);

// torch's form: {"message": {"message": …, "extraInfo": {"timestamp": seconds since 1970 as text}}}. Its
// agent reports the failure with the smallest timestamp.
std::string error_file_text(const std::string& message, int64_t seconds_since_epoch);

}  // namespace trireme::app

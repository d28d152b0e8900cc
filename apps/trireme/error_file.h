#pragma once
// The file in which torchrun wants a failed process to say why: TORCHELASTIC_ERROR_FILE.
#include <cstdint>
#include <string>

namespace trireme::app {

// torch's form: {"message": {"message": …, "extraInfo": {"timestamp": seconds since 1970 as text}}}. Its
// agent reports the failure with the smallest timestamp.
std::string error_file_text(const std::string& message, int64_t seconds_since_epoch);

// Writes it where the environment names such a file. A file that cannot be written is passed over: the
// message is on standard error anyway.
void write_error_file(const std::string& message);

}  // namespace trireme::app

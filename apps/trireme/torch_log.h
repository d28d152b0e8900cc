#pragma once

namespace trireme::app {
// torch reports errors that it also throws, with their stack, on standard error; silent here unless
// TORCH_CPP_LOG_LEVEL asks for them, so that a failure is one line.
void set_up_torch_log();
}  // namespace trireme::app

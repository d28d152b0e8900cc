#include <c10/util/Logging.h>

#include "torch_log.h"
#include "trireme/base/environment.h"

namespace trireme::app {

void set_up_torch_log() {
  constexpr int fatal_only = 3;
  if (environment("TORCH_CPP_LOG_LEVEL")) {
    c10::initLogging();
  } else {
    FLAGS_caffe2_log_level = fatal_only;
  }
}

}  // namespace trireme::app

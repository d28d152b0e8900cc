#pragma once
// Can a request still be answered in time? A pure function of what waits and runs now.
#include <span>

#include "trireme/serve/batching.h"

namespace trireme::serve {

struct Load {
  int64_t waiting_requests = 0;
  int64_t waiting_rows = 0;
  std::span<const double> running_s;  // one per instance: what is left of its run as estimated, 0 when idle
};

struct AdmissionLimits {
  double slo_s = 0;     // 0: only the queue's length counts
  double margin_s = 0;  // network, parsing and writing
  int64_t max_waiting = 1024;
};

struct Verdict {
  bool admitted = true;
  double estimate_s = 0;  // from now to the answer
  const char* why = "";   // when refused
};

// Admitted when the estimate is within the SLO less the request's age (MArk's Bouncer, whose formula the
// paper leaves open): what is left of the running batches, the batches ahead in the queue spread over the
// instances, the wait for the own batch to close unless the queue fills it, and the own run at its tail time.
Verdict admit(const Load& load, int64_t rows, double age_s, const BatchTimes& measured,
              const Batching& batching, const AdmissionLimits& limits);

}  // namespace trireme::serve

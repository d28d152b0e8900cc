#pragma once
// What only running a model tells: its times per batch size, and whether its rows are independent.
#include <vector>

#include "trireme/serve/backend.h"
#include "trireme/serve/batch_times.h"

namespace trireme::serve {

// Rows of made-up values: uniform in [0, 1) for floats, 0 and 1 for integers, drawn from `seed`.
struct MadeInputs {
  std::vector<std::vector<std::byte>> bytes;
  std::vector<RunInput> inputs;  // view `bytes`
};
MadeInputs make_inputs(const ModelInfo& model, int64_t rows, uint64_t seed);

// False when running two rows together gives another result than each alone (batch statistics, a softmax over
// the batch): then rows must not be joined. Runs the model three times, which also warms it up.
bool rows_are_independent(Backend& backend);

// Medians over at least 3 runs each of 1, 2, 4, … max_rows rows, after one run for warm-up. Ends early at
// `budget_s`, or with the first size that takes longer than `longest_s`.
std::vector<BatchTime> measure_times(Backend& backend, int64_t max_rows, double longest_s, double budget_s);
// The same of all instances at once, each on a thread of its own as when serving: they share processors and
// memory. Of each size the slowest.
std::vector<BatchTime> measure_together(const Instances& instances, int64_t max_rows, double longest_s,
                                        double budget_s);

}  // namespace trireme::serve

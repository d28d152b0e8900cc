#pragma once
// Results of a search as text: JSON for programs, a table for people, the reasons of each decision.
#include <string>

#include "trireme/deploy/engine.h"

namespace trireme::deploy {

// One JSON object; schema: docs/reference/search.md, Output.
std::string to_json(const Outcome& outcome, const SearchSetup& setup, const std::string& method);
std::string to_table(const Outcome& outcome, const SearchSetup& setup);
// What was weighed in one decision, best first; at most `rows` candidates.
std::string to_text(const Snapshot& snapshot, const Decision& decision, size_t rows = 12);

}  // namespace trireme::deploy

#pragma once
// models/model.json of a `.pt2` (torch/_export/serde/schema.py, version 8) as a spec::Graph.
#include <string_view>

#include "trireme/spec/graph.h"

namespace trireme::graph {

inline constexpr int kSchemaMajor = 8, kSchemaMinor = 20;  // the newest that was read and tested: torch 2.13

// Of schema.ScalarType, also in spec::EnumArg. Error(unsupported) for those that spec does not know.
spec::Dtype dtype_from_schema(int64_t number);

// All but the weights. Error(input) for JSON that is broken or contradicts itself: a value read before it is
// made, made twice, or without its description. Error(unsupported) for another schema major.
spec::Graph parse_pt2_graph(std::string_view json);

// A weights or constants configuration: adds its entries to `weights`, their records below `folder`.
// Error(input) for pickled ones, unless they are objects that no tensor could stand for.
void parse_pt2_weights(std::string_view json, const std::string& folder,
                       std::map<std::string, spec::Weight>& weights);

}  // namespace trireme::graph

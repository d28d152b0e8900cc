#include "trireme/graph/input_check.h"

#include "trireme/base/error.h"

namespace trireme::graph {
namespace {

const char* kind_name(spec::ValueKind kind) {
  switch (kind) {
    case spec::ValueKind::tensor:
      return "a tensor";
    case spec::ValueKind::sym_int:
      return "an integer";
    case spec::ValueKind::sym_float:
      return "a real number";
    case spec::ValueKind::sym_bool:
      return "true or false";
    case spec::ValueKind::object:
      return "an object";
  }
  return "";
}

std::string to_text(const spec::Range& range) {
  if (range.minimum && range.maximum) return cat(*range.minimum, " to ", *range.maximum);
  if (range.minimum) return cat("at least ", *range.minimum);
  if (range.maximum) return cat("at most ", *range.maximum);
  return "anything";
}

// A minimum of 2 is torch.export's assumption about sizes left to it (Dim.AUTO, Dim.DYNAMIC), not a limit of
// the graph: PyTorch does not enforce it either.
bool holds(const spec::Range& range, int64_t size) {
  constexpr int64_t kAssumed = 2;
  return (!range.minimum || *range.minimum == kAssumed || size >= *range.minimum) &&
         (!range.maximum || size <= *range.maximum);
}

}  // namespace

InputCheck::InputCheck(const spec::Graph& graph) : ranges_(graph.ranges) {
  const auto size_of = [](const spec::Dim& dim, std::string where) {
    SymExpr constant;
    constant.constant = dim.hint;
    return Size{std::move(where), dim.symbol.empty() ? constant : parse_sym_expr(dim.symbol), dim.symbol};
  };
  for (const auto& input : graph.inputs) {
    if (input.kind != spec::InputKind::user) continue;
    const auto& value = graph.values.at(static_cast<size_t>(input.value));
    Input checked{input.name, value.kind, value.dtype, {}};
    const std::string name = cat("input '", input.name, "'");
    if (value.kind == spec::ValueKind::sym_int) checked.sizes.push_back(size_of(value.number, name));
    for (size_t d = 0; d < value.sizes.size(); ++d)
      checked.sizes.push_back(size_of(value.sizes[d], cat(name, ", dimension ", d)));
    inputs_.push_back(std::move(checked));
  }
}

void InputCheck::operator()(std::span<const GivenInput> given) const {
  if (given.size() != inputs_.size()) {
    std::string names;
    for (const auto& input : inputs_) names += (names.empty() ? "" : ", ") + input.name;
    fail(ErrorCode::input, given.size(), " inputs were given, the model takes ", inputs_.size(), ": ", names);
  }
  std::vector<std::pair<const Size*, int64_t>> sizes;
  for (size_t i = 0; i < given.size(); ++i) {
    const auto& input = inputs_[i];
    if (given[i].kind != input.kind)
      fail(ErrorCode::input, "input '", input.name, "' is ", kind_name(given[i].kind), ", the model takes ",
           kind_name(input.kind));
    if (input.kind == spec::ValueKind::sym_int) sizes.emplace_back(&input.sizes[0], given[i].number);
    if (input.kind != spec::ValueKind::tensor) continue;
    if (given[i].dtype != input.dtype)
      fail(ErrorCode::input, "input '", input.name, "' has elements of type ", spec::name(given[i].dtype),
           ", the model takes ", spec::name(input.dtype));
    if (given[i].sizes.size() != input.sizes.size())
      fail(ErrorCode::input, "input '", input.name, "' has ", given[i].sizes.size(),
           " dimensions, the model takes ", input.sizes.size());
    for (size_t d = 0; d < input.sizes.size(); ++d) sizes.emplace_back(&input.sizes[d], given[i].sizes[d]);
  }
  check_sizes(sizes);
}

void InputCheck::check_sizes(const std::vector<std::pair<const Size*, int64_t>>& sizes) const {
  std::map<std::string, int64_t> symbols;
  std::map<std::string, const Size*> first;
  for (const auto& [size, actual] : sizes) {
    if (size->expr.kind == SymExpr::Kind::constant && size->expr.constant != actual)
      fail(ErrorCode::input, size->where, " is ", actual, ", the model takes only ", size->expr.constant);
    if (size->expr.kind != SymExpr::Kind::symbol) continue;
    const auto [known, is_new] = symbols.emplace(size->text, actual);
    if (!is_new && known->second != actual)
      fail(ErrorCode::input, size->where, " is ", actual, ", but must equal ", first[size->text]->where,
           ", which is ", known->second);
    first.emplace(size->text, size);
    const auto range = ranges_.find(size->text);
    if (range != ranges_.end() && !holds(range->second, actual))
      fail(ErrorCode::input, size->where, " is ", actual, ", allowed is ", to_text(range->second));
  }
  for (const auto& [size, actual] : sizes) {
    if (size->expr.kind != SymExpr::Kind::function) continue;
    const auto expected = evaluate(size->expr, symbols);
    if (expected && *expected != actual)
      fail(ErrorCode::input, size->where, " is ", actual, ", but must be ", size->text, " = ", *expected);
  }
}

}  // namespace trireme::graph

#include "trireme/comm/task_graph.h"

#include <set>
#include <utility>

#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

struct Access {  // memory that a task reads or writes, in elements of a slot
  int32_t slot = -1;
  int64_t begin = 0, end = 0;
  bool write = false;
};

bool computes(Primitive p) {
  return p != Primitive::send && p != Primitive::receive;
}

std::vector<int32_t> numbers_slots(const TaskGraph& graph) {
  std::vector<int32_t> slots;
  for (size_t i = 0; i < graph.slots.size(); ++i) {
    if (graph.slots[i].kind == Slot::Kind::numbers) slots.push_back(static_cast<int32_t>(i));
  }
  return slots;
}

std::vector<Access> accesses(const TaskGraph& graph, const Task& t) {
  std::vector<Access> list;
  const auto add = [&](int32_t slot, int64_t offset, bool write) {
    if (slot < 0) return;
    const Slot& s = graph.slots[static_cast<size_t>(slot)];
    const bool whole = s.kind == Slot::Kind::wire || t.round >= 0;
    list.push_back({slot, whole ? 0 : offset, whole ? s.elements : offset + t.elements, write});
  };
  add(t.from, t.from_offset, false);
  add(t.to, t.to_offset, true);
  if (t.round < 0) return list;
  const auto numbers = numbers_slots(graph);  // those of earlier rounds
  for (int32_t r = 0; r < t.round; ++r) add(numbers.at(static_cast<size_t>(r)), 0, false);
  return list;
}

void verify_task(const TaskGraph& graph, const Task& t, int group_size) {
  const bool reads = t.primitive != Primitive::receive, writes = t.primitive != Primitive::send;
  TRIREME_CHECK((t.from >= 0) == reads && (t.to >= 0) == writes, name(t.primitive), " with slots ", t.from,
                ", ", t.to);
  TRIREME_CHECK(t.elements > 0, name(t.primitive), " of ", t.elements, " elements");
  const auto check_slot = [&](int32_t slot, int64_t offset) {
    TRIREME_CHECK(slot < static_cast<int32_t>(graph.slots.size()), "slot ", slot);
    const Slot& s = graph.slots[static_cast<size_t>(slot)];
    if (t.round >= 0 && s.kind == Slot::Kind::numbers) return;
    TRIREME_CHECK(offset >= 0 && offset + t.elements <= s.elements, "slot ", slot, " holds ", s.elements);
    TRIREME_CHECK(s.kind != Slot::Kind::wire || offset == 0, "offset ", offset, " in a payload");
  };
  if (reads) check_slot(t.from, t.from_offset);
  if (writes) check_slot(t.to, t.to_offset);
  if (t.primitive == Primitive::encode) {
    const auto kind = t.round >= 0 ? Slot::Kind::numbers : Slot::Kind::wire;
    TRIREME_CHECK(graph.slots[static_cast<size_t>(t.to)].kind == kind);
    TRIREME_CHECK(graph.slots[static_cast<size_t>(t.from)].kind != Slot::Kind::wire);
  }
  if (!computes(t.primitive))
    TRIREME_CHECK(t.peer >= 0 && t.peer < group_size, "peer ", t.peer, " of ", group_size);
  for (const int32_t before : t.after) {
    TRIREME_CHECK(before >= 0 && before < static_cast<int32_t>(graph.tasks.size()), "after ", before);
  }
}

// Tasks in an order that respects `after`; a check fails when there is none.
std::vector<size_t> topological_order(const TaskGraph& graph) {
  const size_t n = graph.tasks.size();
  std::vector<size_t> waiting(n), order;
  std::vector<std::vector<size_t>> successors(n);
  for (size_t i = 0; i < n; ++i) {
    waiting[i] = graph.tasks[i].after.size();
    for (const int32_t before : graph.tasks[i].after) successors[static_cast<size_t>(before)].push_back(i);
    if (waiting[i] == 0) order.push_back(i);
  }
  for (size_t next = 0; next < order.size(); ++next) {
    for (const size_t s : successors[order[next]]) {
      if (--waiting[s] == 0) order.push_back(s);
    }
  }
  TRIREME_CHECK(order.size() == n, "the graph has a cycle");
  return order;
}

void verify_races(const TaskGraph& graph) {
  const size_t n = graph.tasks.size();
  std::vector<std::vector<bool>> before(n,
                                        std::vector<bool>(n));  // before[i][j]: j always ends before i starts
  for (const size_t i : topological_order(graph)) {
    for (const int32_t a : graph.tasks[i].after) {
      const auto j = static_cast<size_t>(a);
      before[i][j] = true;
      for (size_t k = 0; k < n; ++k) {
        if (before[j][k]) before[i][k] = true;
      }
    }
  }
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (before[i][j] || before[j][i]) continue;
      for (const Access& a : accesses(graph, graph.tasks[i])) {
        for (const Access& b : accesses(graph, graph.tasks[j])) {
          const bool overlap = a.slot == b.slot && a.begin < b.end && b.begin < a.end;
          TRIREME_CHECK(!(overlap && (a.write || b.write)), "tasks ", i, " and ", j, " race in slot ",
                        a.slot);
        }
      }
    }
  }
}

}  // namespace

std::string_view name(Primitive primitive) {
  switch (primitive) {
    case Primitive::encode:
      return "encode";
    case Primitive::decode:
      return "decode";
    case Primitive::merge:
      return "merge";
    case Primitive::send:
      return "send";
    case Primitive::receive:
      return "receive";
  }
  return "unknown";
}

std::string to_text(const TaskGraph& graph) {
  std::string text;
  for (size_t i = 0; i < graph.tasks.size(); ++i) {
    const Task& t = graph.tasks[i];
    text += cat(i, ": ", name(t.primitive));
    const auto range = [&](int32_t slot, int64_t offset) {
      return cat(" ", slot, "[", offset, ":", offset + t.elements, "]");
    };
    if (t.from >= 0) text += range(t.from, t.from_offset);
    if (t.from >= 0 && t.to >= 0) text += " ->";
    if (t.to >= 0) text += range(t.to, t.to_offset);
    if (t.scale != 1) text += cat(" x", t.scale);
    if (t.round >= 0) text += cat(" round ", t.round);
    if (t.workers != 1) text += cat(" worker ", t.worker, "/", t.workers);
    if (!computes(t.primitive)) {
      text += cat(t.primitive == Primitive::send ? " to " : " from ", t.peer, " part ", t.part);
    }
    for (size_t k = 0; k < t.after.size(); ++k) text += cat(k == 0 ? " after " : ", ", t.after[k]);
    text += "\n";
  }
  return text;
}

void verify(const TaskGraph& graph, int group_size) {
  std::set<std::pair<int32_t, uint16_t>> sent, received;
  for (const Task& t : graph.tasks) {
    verify_task(graph, t, group_size);
    if (t.primitive == Primitive::send) {
      TRIREME_CHECK(sent.emplace(t.peer, t.part).second, "part ", t.part, " sent twice to ", t.peer);
    }
    if (t.primitive == Primitive::receive) {
      TRIREME_CHECK(received.emplace(t.peer, t.part).second, "part ", t.part, " received twice from ",
                    t.peer);
    }
  }
  verify_races(graph);
}

}  // namespace trireme::comm

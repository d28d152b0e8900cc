#pragma once
// One loop over independent items. Which thread takes which item is left to chance, so an item must not
// depend on it.
#include <cstddef>
#include <functional>

namespace trireme::stats {

// Calls body(item) once for each item in [0, count) on up to `threads` threads (0: one per processor), and
// returns when all are done. The first exception is rethrown here; items not yet begun are then left out.
void parallel_for(size_t count, unsigned threads, const std::function<void(size_t)>& body);

}  // namespace trireme::stats

// What the files here share. Each defines a function <name>_algorithms(), its row in
// collective/algorithms.cpp; schedules are made for two ranks or more.
#pragma once

#include "collective/algorithms.h"
#include "collective/writer.h"

namespace tnt {

inline bool fits_all(const Task&) { return true; }

// Whether data memory holds the vector already and keeps the result, or the writer's copy_in() and
// copy_out() bring it there and back.
enum class Ends { data, caller };

// Appends an allreduce of a range of data memory among two or more members.
void write_ring_allreduce(Writer& writer, const Members& members, Range range,
                          std::size_t element_bytes, Ends ends);
void write_recursive_doubling(Writer& writer, const Members& members, Range range, Ends ends);

}  // namespace tnt

// What each file of algorithms gives to the registry, and what they lend each other.
#pragma once

#include <vector>

#include "collective/algorithms.h"
#include "collective/writer.h"

namespace tnt {

inline bool fits_all(const Task&) { return true; }

std::vector<Algorithm> recursive_doubling_algorithms();
std::vector<Algorithm> rabenseifner_algorithms();
std::vector<Algorithm> ring_algorithms();
std::vector<Algorithm> double_tree_algorithms();
std::vector<Algorithm> direct_algorithms();
std::vector<Algorithm> direct_block_algorithms();
std::vector<Algorithm> hierarchical_algorithms();
std::vector<Algorithm> binomial_algorithms();
std::vector<Algorithm> chain_algorithms();
std::vector<Algorithm> bruck_algorithms();
std::vector<Algorithm> pairwise_algorithms();
std::vector<Algorithm> dissemination_algorithms();

// Whether data memory holds the vector already and keeps the result, or the writer's copy_in() and
// copy_out() bring it there and back.
enum class Ends { data, caller };

// Appends an allreduce of a range of data memory among two or more members.
void write_ring_allreduce(Writer& writer, const Members& members, Range range,
                          std::size_t element_bytes, Ends ends);
void write_recursive_doubling(Writer& writer, const Members& members, Range range, Ends ends);

}  // namespace tnt

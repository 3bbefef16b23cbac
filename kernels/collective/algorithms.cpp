#include "collective/algorithms.h"

#include <algorithm>

namespace tnt {
namespace {

Range data(std::size_t begin, std::size_t count) { return {Memory::data, begin, count}; }
Range scratch(std::size_t begin, std::size_t count) { return {Memory::scratch, begin, count}; }

// Appends the steps of one rank, counting rounds.
struct Writer {
  Schedule schedule;
  std::uint32_t round = 0;

  void send(int peer, Range from) {
    schedule.steps.push_back({round, Action::send, peer, from, {}});
  }
  void receive(int peer, Range to) {
    schedule.steps.push_back({round, Action::receive, peer, {}, to});
  }
  void reduce(Range to, Range from) {
    schedule.steps.push_back({round, Action::reduce, -1, from, to});
  }
  void exchange_and_reduce(int peer, std::size_t count) {
    receive(peer, scratch(0, count));
    send(peer, data(0, count));
    reduce(data(0, count), scratch(0, count));
  }
};

// `parts` nearly equal parts of `count` elements: part i begins here.
std::size_t part_begin(std::size_t count, int parts, int i) {
  return count / parts * i + std::min<std::size_t>(count % parts, i);
}

}  // namespace

// Ranks beyond the largest power of two hand their data to a partner and get the result back.
//
//   size 5:   4 -> 0 | 0 <-> 1, 2 <-> 3 | 0 <-> 2, 1 <-> 3 | 0 -> 4
Schedule allreduce_recursive_doubling(int rank, int size, std::size_t count) {
  Writer writer;
  writer.schedule.scratch_count = count;
  int core = 1;
  while (core * 2 <= size) core *= 2;
  const int partner = rank < core ? rank + core : rank - core;
  const bool folded = partner < size && partner >= 0 && size > core;
  if (folded && rank >= core) {
    writer.send(partner, data(0, count));
    ++writer.round;
    writer.receive(partner, data(0, count));
    return writer.schedule;
  }
  if (folded) {
    writer.receive(partner, scratch(0, count));
    writer.reduce(data(0, count), scratch(0, count));
    ++writer.round;
  }
  for (int distance = 1; distance < core; distance *= 2, ++writer.round)
    writer.exchange_and_reduce(rank ^ distance, count);
  if (folded) writer.send(partner, data(0, count));
  return writer.schedule;
}

// Reduce-scatter around the ring, then allgather around the ring: part i is complete on rank i - 1
// after size - 1 rounds.
Schedule allreduce_ring(int rank, int size, std::size_t count) {
  Writer writer;
  if (size == 1) return writer.schedule;
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  const auto part = [&](int i) {
    i = (i % size + size) % size;
    const std::size_t begin = part_begin(count, size, i);
    return data(begin, part_begin(count, size, i + 1) - begin);
  };
  writer.schedule.scratch_count = part(0).count;  // the largest part
  for (int k = 0; k < size - 1; ++k, ++writer.round) {
    const Range incoming = part(rank - k - 1);
    writer.receive(previous, scratch(0, incoming.count));
    writer.send(next, part(rank - k));
    writer.reduce(incoming, scratch(0, incoming.count));
  }
  for (int k = 0; k < size - 1; ++k, ++writer.round) {
    writer.receive(previous, part(rank - k));
    writer.send(next, part(rank + 1 - k));
  }
  return writer.schedule;
}

Schedule allreduce(int rank, int size, std::size_t count, std::size_t element_bytes) {
  constexpr std::size_t latency_bound_bytes = 32 * 1024;
  return count * element_bytes <= latency_bound_bytes
             ? allreduce_recursive_doubling(rank, size, count)
             : allreduce_ring(rank, size, count);
}

Schedule allgather_ring(int rank, int size, const std::vector<std::size_t>& offsets) {
  Writer writer;
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  const auto block = [&](int i) {
    i = (i + size) % size;
    return data(offsets[i], offsets[i + 1] - offsets[i]);
  };
  for (int k = 0; k < size - 1; ++k, ++writer.round) {
    writer.receive(previous, block(rank - k - 1));
    writer.send(next, block(rank - k));
  }
  return writer.schedule;
}

// Seen from the root, rank r receives from r with its lowest set bit cleared, and then serves the
// ranks r + 2^k below that bit, the farthest first.
Schedule broadcast_binomial(int rank, int size, std::size_t count, int root) {
  Writer writer;
  const int relative = (rank - root + size) % size;
  const auto absolute = [&](int r) { return (r + root) % size; };
  int bit = 1;
  while (bit < size && (relative & bit) == 0) bit *= 2;
  if (relative != 0) {
    writer.receive(absolute(relative - bit), data(0, count));
    ++writer.round;
  }
  for (bit /= 2; bit > 0; bit /= 2)
    if (relative + bit < size) writer.send(absolute(relative + bit), data(0, count));
  return writer.schedule;
}

Schedule barrier_dissemination(int rank, int size) {
  Writer writer;
  writer.schedule.scratch_count = 2;
  for (int distance = 1; distance < size; distance *= 2, ++writer.round) {
    writer.receive((rank - distance + size) % size, scratch(0, 1));
    writer.send((rank + distance) % size, scratch(1, 1));
  }
  return writer.schedule;
}

}  // namespace tnt

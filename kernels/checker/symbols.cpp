#include "checker/symbols.h"

namespace tnt {
namespace {

std::uint64_t mix(std::uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

std::uint64_t total(int operation, int size) {
  std::uint64_t total = 0;
  for (int rank = 0; rank < size; ++rank) total += contribution(operation, rank).sum;
  return total;
}

std::vector<Piece> expected_flows(const Task& task, int operation) {
  std::vector<std::size_t> given(task.size);  // so far, by each rank
  std::vector<Piece> pieces;
  std::size_t begin = 0;
  for (const Flow& flow : task.flows) {
    if (flow.to == task.rank) {
      const Content content = contribution(operation, flow.from).after(given[flow.from]);
      pieces.push_back({begin, begin + flow.count, content});
      begin += flow.count;
    }
    given[flow.from] += flow.count;
  }
  return pieces;
}

}  // namespace

void append(std::vector<Piece>& pieces, const Piece& piece) {
  if (!pieces.empty()) {
    Piece& last = pieces.back();
    const Content next = last.content.after(last.end - last.begin);
    if (last.end == piece.begin && next.sum == piece.content.sum &&
        next.shape == piece.content.shape && next.first == piece.content.first) {
      last.end = piece.end;
      return;
    }
  }
  pieces.push_back(piece);
}

Content contribution(int operation, int rank) {
  const std::uint64_t number =
      mix(static_cast<std::uint64_t>(operation) << 32 | static_cast<std::uint32_t>(rank));
  return {number, mix(number), 0};
}

Content sum(const Content& a, const Content& b) {
  return {a.sum + b.sum, mix(a.shape + b.shape), a.first};
}

std::vector<Piece> expected_result(const Task& task, int operation) {
  switch (task.collective) {
    case Collective::reduce:
      if (task.rank != task.root) return {};
      [[fallthrough]];
    case Collective::allreduce: return {{0, task.count, {total(operation, task.size), 0, 0}}};
    case Collective::reduce_scatter: {
      const std::size_t begin = task.offsets[task.rank];
      return {{0, task.offsets[task.rank + 1] - begin, {total(operation, task.size), 0, begin}}};
    }
    case Collective::broadcast: return {{0, task.count, contribution(operation, task.root)}};
    case Collective::barrier: return {};
    case Collective::alltoallv: return expected_flows(task, operation);
    case Collective::allgather:
    case Collective::alltoall: break;
  }
  std::vector<Piece> blocks;
  for (int q = 0; q < task.size; ++q) {
    Piece piece{q * task.count, (q + 1) * task.count, contribution(operation, q)};
    piece.content.first = task.rank * task.count;
    if (task.collective == Collective::allgather) {
      piece.begin = piece.content.first = task.offsets[q];
      piece.end = task.offsets[q + 1];
    }
    blocks.push_back(piece);
  }
  return blocks;
}

}  // namespace tnt

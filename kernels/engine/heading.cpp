#include "engine/heading.h"

#include "collective/algorithms.h"

namespace tnt {
namespace {

// From the low end: collective, type, reduction, algorithm, count.
constexpr int type_at = 4, reduction_at = 8, algorithm_at = 12, count_at = 20;
constexpr std::uint64_t nibble = 0xf, byte = 0xff;

// And in the other word: root, then what fits of the number that was agreed on.
constexpr int agreed_at = 16;
constexpr std::uint64_t root_mask = 0xffff;

}  // namespace

Heading heading_of(const Request& request, int algorithm, std::uint64_t blocks) {
  const std::size_t count = request.offsets.empty() ? request.count : request.offsets.back();
  const std::uint64_t agreed = blocks == 0 ? request.agreed : hash_of(blocks, request.agreed);
  return {static_cast<std::uint64_t>(request.collective) |
              static_cast<std::uint64_t>(request.wire) << type_at |
              static_cast<std::uint64_t>(request.reduction) << reduction_at |
              (static_cast<std::uint64_t>(algorithm) & byte) << algorithm_at |
              static_cast<std::uint64_t>(count) << count_at,
          (static_cast<std::uint64_t>(request.root) & root_mask) | agreed << agreed_at};
}

std::string describe(const Heading& heading) {
  const auto collective = static_cast<Collective>(heading.operation & nibble);
  const auto type = static_cast<Type>(heading.operation >> type_at & nibble);
  const auto reduction = static_cast<Reduction>(heading.operation >> reduction_at & nibble);
  const auto algorithm = static_cast<std::size_t>(heading.operation >> algorithm_at & byte);
  const std::uint64_t count = heading.operation >> count_at;
  const bool reduces = collective == Collective::allreduce || collective == Collective::reduce ||
                       collective == Collective::reduce_scatter;
  const bool rooted = collective == Collective::broadcast || collective == Collective::reduce;
  std::string text = name_of(collective);
  if (reduces) text += std::string(" (") + name_of(reduction) + ")";
  if (count != 0) text += " of " + std::to_string(count) + " " + name_of(type);
  if (rooted) text += ", root " + std::to_string(heading.details & root_mask);
  text += " by ";
  text += algorithm < algorithms().size() ? algorithms()[algorithm].name : "a schedule of its own";
  return text;
}

std::uint64_t hash_of(std::uint64_t number, std::uint64_t before) {
  std::uint64_t x = before + number + 0x9e3779b97f4a7c15;  // splitmix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace tnt

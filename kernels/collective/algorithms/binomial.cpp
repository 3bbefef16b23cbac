// Broadcast and reduce along a binomial tree.
//
// Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication
// Operations in MPICH", IJHPCA 19(1), 2005, on broadcast and on reduce.
//
// Ranks are counted from the root. The parent of a rank lacks its lowest set bit:
//
//        0            broadcast: down, the child with the largest subtree first
//      / | \          reduce: up, the child with the smallest subtree first
//     4  2  1
//    /|  |
//   6 5  3
//   |
//   7
#include "collective/algorithms/family.h"

namespace tnt {
namespace {

struct Tree {
  int parent = here;          // here: this is the root
  std::vector<int> children;  // smallest subtree first
};

Tree make_tree(const Task& task) {
  const Members members = all_ranks(task);
  const auto root = std::find(members.ranks.begin(), members.ranks.end(), task.root);
  const int first = static_cast<int>(root - members.ranks.begin());
  const auto rank_of = [&](int relative) { return members.around(first + relative); };
  const int relative = (members.me - first + task.size) % task.size;
  Tree tree;
  for (int bit = 1; bit < task.size; bit *= 2) {
    if ((relative & bit) != 0) {
      tree.parent = rank_of(relative - bit);
      break;
    }
    if (relative + bit < task.size) tree.children.push_back(rank_of(relative + bit));
  }
  return tree;
}

Schedule make_broadcast(const Task& task) {
  const Tree tree = make_tree(task);
  Writer writer(task);
  if (tree.parent == here)
    writer.copy_in({0, task.count});
  else
    writer.receive(tree.parent, data_at(0), task.count);
  writer.next_round();
  for (auto child = tree.children.rbegin(); child != tree.children.rend(); ++child)
    writer.send(*child, data_at(0), task.count);
  writer.copy_out({0, task.count});
  return writer.finish();
}

Schedule make_reduce(const Task& task) {
  const Tree tree = make_tree(task);
  const bool is_root = tree.parent == here;
  Writer writer(task);
  // Two slots take turns: one is received into while the other is added.
  const auto slot = [&](std::size_t i) { return scratch_at(i % 2 * task.count); };
  for (std::size_t i = 0; i < tree.children.size(); ++i) {
    writer.receive(tree.children[i], slot(i), task.count);
    if (i == 0) writer.copy_in({0, task.count});
    if (i > 0) writer.reduce(data_at(0), data_at(0), slot(i - 1), task.count);
    writer.next_round();
  }
  if (tree.children.empty())
    writer.copy_in({0, task.count});
  else
    writer.reduce(is_root ? writer.result_at(0) : data_at(0), data_at(0),
                  slot(tree.children.size() - 1), task.count);
  if (!is_root) writer.send(tree.parent, data_at(0), task.count);
  return writer.finish();
}

}  // namespace

std::vector<Algorithm> binomial_algorithms() {
  return {{"binomial", Collective::broadcast, fits_all, make_broadcast},
          {"binomial", Collective::reduce, fits_all, make_reduce}};
}

}  // namespace tnt

// Allreduce up and down two binary trees at once, each for half of the vector: a rank that has
// children in one tree is a leaf of the other, so all links carry the same load.
//
// Source: P. Sanders, J. Speck, J. L. Traeff, "Two-tree algorithms for full bandwidth broadcast,
// reduction and scan", Parallel Computing 35(12), 2009, on the two trees.
//
// The first tree of seven ranks, at positions 1 to 7; the second has the positions mirrored, or
// turned by one where their number is odd:
//
//   height 2          4
//                 /       \           The height of a position is the number of its trailing
//   height 1    2           6         zero bits; the root is the largest power of two.
//             /   \       /   \ .
//   height 0 1     3     5     7
//
// The halves are cut into blocks, which follow each other through the tree. Block b is in slot
//
//   b                       copied in by leaves
//   b + 1 + 2 * height      sent to the parent, which adds it in the next slot
//   b + turn + depth        sent to the children, and copied out; turn = 1 + 2 * height of the root
//
// A slot is a round, where the rank has anything to do in it.
#include "collective/algorithms/family.h"

namespace tnt {
namespace {

int largest_power(int most) {
  int power = 1;
  while (power * 2 <= most) power *= 2;
  return power;
}

int lowest_bit(int position) { return position & -position; }

std::size_t height_of(int position) {
  std::size_t height = 0;
  for (int bit = lowest_bit(position); bit > 1; bit /= 2) ++height;
  return height;
}

// 0: there is none.
int lower_child(int position) {
  return position % 2 == 0 ? position - lowest_bit(position) / 2 : 0;
}

// Above the last position there is nothing: the child is the root of what there is.
int upper_child(int position, int size) {
  const int below = std::min(size - position, lowest_bit(position) - 1);
  return below > 0 ? position + largest_power(below) : 0;
}

// A tree as one of its ranks sees it.
struct Tree {
  struct Child {
    int rank;
    std::size_t height;
    std::size_t first_slot;  // of scratch memory: each child has two, which take turns
  };
  Range half;                   // of the vector
  int parent = here;            // here: this is the root
  std::vector<Child> children;  // whose blocks come first, first
  std::size_t height = 0, depth = 0, turn = 0;
};

// rank_at maps positions to ranks.
template <class RankAt>
Tree make_tree(int own_position, int size, Range half, RankAt rank_at) {
  Tree tree;
  tree.half = half;
  const int root = largest_power(size);
  for (int at = root; at != own_position; ++tree.depth) {
    tree.parent = rank_at(at);
    at = own_position < at ? lower_child(at) : upper_child(at, size);
  }
  for (const int child : {lower_child(own_position), upper_child(own_position, size)})
    if (child != 0)
      tree.children.push_back({rank_at(child), height_of(child), 2 * tree.children.size()});
  std::sort(tree.children.begin(), tree.children.end(),
            [](const Tree::Child& a, const Tree::Child& b) { return a.height < b.height; });
  tree.height = height_of(own_position);
  tree.turn = 1 + 2 * height_of(root);
  return tree;
}

std::vector<Tree> make_trees(const Task& task) {
  const Members members = all_ranks(task);
  const Range whole{0, task.count};
  const int size = task.size, me = members.me;
  const bool mirrors = size % 2 == 0;
  const auto first = [&](int position) { return members.rank(position - 1); };
  const auto second = [&](int position) {
    return members.rank(mirrors ? size - position : position % size);
  };
  const int turned = me == 0 ? size : me;
  return {make_tree(me + 1, size, part(whole, 2, 0), first),
          make_tree(mirrors ? size - me : turned, size, part(whole, 2, 1), second)};
}

class Flow {
 public:
  explicit Flow(const Task& task) : writer_(task), trees_(make_trees(task)) {
    const std::size_t bytes = trees_[0].half.count * task.element_bytes;
    blocks_ = pipelined_blocks(bytes, trees_[0].turn * 3 / 2);
    slot_count_ = part(trees_[0].half, blocks_, 0).count;
  }

  Schedule write() {
    std::size_t slots = 0;
    for (const Tree& tree : trees_) slots = std::max(slots, tree.turn + tree.depth + blocks_);
    writer_.reserve(blocks_ * 16);
    for (std::size_t slot = 0; slot < slots; ++slot) {
      for (const Tree& tree : trees_) receive(tree, slot);
      for (const Tree& tree : trees_) send(tree, slot);
      for (const Tree& tree : trees_) add_and_copy(tree, slot);
      writer_.next_round();
    }
    return writer_.finish();
  }

 private:
  // Both ends of a link go through the trees in the same order: so its messages match.
  void receive(const Tree& tree, std::size_t slot) {
    for (const Tree::Child& child : tree.children)
      if (const Range block = block_in(tree, slot, 1 + 2 * child.height); block.count != 0)
        writer_.receive(child.rank, place_of(child, slot), block.count);
    if (tree.parent == here) return;
    const Range block = block_in(tree, slot, tree.turn + tree.depth - 1);
    writer_.receive(tree.parent, data_at(block.begin), block.count);
  }

  void send(const Tree& tree, std::size_t slot) {
    if (tree.parent != here) {
      const Range block = block_in(tree, slot, 1 + 2 * tree.height);
      writer_.send(tree.parent, data_at(block.begin), block.count);
    }
    const Range block = block_in(tree, slot, tree.turn + tree.depth);
    for (const Tree::Child& child : tree.children)
      writer_.send(child.rank, data_at(block.begin), block.count);
  }

  void add_and_copy(const Tree& tree, std::size_t slot) {
    for (const Tree::Child& child : tree.children) {
      const Range block = block_in(tree, slot, 2 + 2 * child.height);
      const bool is_first = &child == &tree.children.front();
      writer_.reduce(data_at(block.begin),
                     is_first ? writer_.given_at(block.begin) : data_at(block.begin),
                     place_of(child, slot - 1), block.count);
    }
    writer_.copy_out(block_in(tree, slot, tree.turn + tree.depth));
    if (tree.children.empty()) writer_.copy_in(block_in(tree, slot, 0));
  }

  // The block that is in this slot where block 0 is in the slot `first`.
  Range block_in(const Tree& tree, std::size_t slot, std::size_t first) const {
    if (slot < first || slot - first >= blocks_) return {};
    return part(tree.half, blocks_, slot - first);
  }

  Place place_of(const Tree::Child& child, std::size_t slot) const {
    return scratch_at((child.first_slot + slot % 2) * slot_count_);
  }

  Writer writer_;
  const std::vector<Tree> trees_;
  std::size_t blocks_ = 1, slot_count_ = 0;
};

Schedule make(const Task& task) { return Flow(task).write(); }

}  // namespace

std::vector<Algorithm> double_tree_algorithms() {
  return {{"double_tree", Collective::allreduce, fits_all, make}};
}

}  // namespace tnt

// Boxes of arrays, beside what indices say element by element.
#include <numeric>

#include "check.h"
#include "elements/boxes.h"

using namespace tnt;
using namespace tnt::test;

namespace {

// The elements of a box, from its indices.
std::vector<std::size_t> elements(const std::vector<std::size_t>& sizes, const Box& box) {
  std::vector<std::size_t> found;
  const std::size_t all = std::accumulate(sizes.begin(), sizes.end(), std::size_t{1},
                                          [](std::size_t a, std::size_t b) { return a * b; });
  for (std::size_t element = 0; element < all; ++element) {
    bool inside = true;
    std::size_t rest = element;
    for (std::size_t dim = sizes.size(); dim-- > 0; rest /= sizes[dim]) {
      const std::size_t index = rest % sizes[dim];
      inside &= box[dim].begin <= index && index < box[dim].end;
    }
    if (inside) found.push_back(element);
  }
  return found;
}

std::vector<std::size_t> elements_of_runs(const std::vector<std::size_t>& sizes, const Box& box) {
  std::vector<std::size_t> found;
  runs(sizes, box, [&](std::size_t first, std::size_t count) {
    CHECK(count != 0);
    for (std::size_t i = 0; i < count; ++i) found.push_back(first + i);
  });
  return found;
}

// Calls visit(box) for all boxes of an array of three dimensions.
template <class Visit>
void all_boxes(const std::vector<std::size_t>& sizes, Visit visit) {
  std::vector<std::vector<Interval>> intervals;
  for (const std::size_t size : sizes) {
    intervals.emplace_back();
    for (std::size_t begin = 0; begin <= size; ++begin)
      for (std::size_t end = begin; end <= size; ++end) intervals.back().push_back({begin, end});
  }
  for (const Interval& a : intervals[0])
    for (const Interval& b : intervals[1])
      for (const Interval& c : intervals[2]) visit(Box{a, b, c});
}

}  // namespace

TEST(runs_are_the_elements_of_a_box_in_their_order) {
  for (const auto& sizes : {std::vector<std::size_t>{3, 4, 2}, {1, 3, 3}, {2, 1, 1}, {2, 0, 2}})
    all_boxes(sizes,
              [&](const Box& box) { CHECK(elements_of_runs(sizes, box) == elements(sizes, box)); });
  CHECK(elements_of_runs({}, {}) == std::vector<std::size_t>{0});
}

TEST(what_follows_in_memory_is_one_run) {
  const auto count = [](const std::vector<std::size_t>& sizes, const Box& box) {
    int runs_of_box = 0;
    runs(sizes, box, [&](std::size_t, std::size_t) { ++runs_of_box; });
    return runs_of_box;
  };
  CHECK_EQUAL(count({4, 5, 6}, {{1, 3}, {0, 5}, {0, 6}}), 1);
  CHECK_EQUAL(count({4, 5, 6}, {{1, 2}, {1, 3}, {0, 6}}), 1);
  CHECK_EQUAL(count({4, 5, 6}, {{0, 4}, {1, 3}, {0, 6}}), 4);
  CHECK_EQUAL(count({4, 5, 6}, {{0, 4}, {0, 5}, {1, 3}}), 20);
}

TEST(what_lies_around_a_box_and_the_box_are_everything_once) {
  const std::vector<std::size_t> sizes{3, 3, 2};
  const Box whole{{0, 3}, {0, 3}, {0, 2}};
  all_boxes(sizes, [&](const Box& inner) {
    if (volume(inner) == 0) return;
    auto found = elements_of_runs(sizes, inner);
    around(whole, inner, [&](const Box& rest) {
      for (const std::size_t element : elements_of_runs(sizes, rest)) found.push_back(element);
    });
    std::sort(found.begin(), found.end());
    CHECK(found == elements(sizes, whole));
  });
}

TEST(boxes_overlap_where_they_have_an_element_in_common) {
  const std::vector<std::size_t> sizes{2, 2, 2};
  all_boxes(sizes, [&](const Box& a) {
    all_boxes(sizes, [&](const Box& b) {
      const auto of_a = elements(sizes, a), of_b = elements(sizes, b);
      std::vector<std::size_t> both;
      std::set_intersection(of_a.begin(), of_a.end(), of_b.begin(), of_b.end(),
                            std::back_inserter(both));
      CHECK_EQUAL(overlap(a, b), !both.empty());
    });
  });
}

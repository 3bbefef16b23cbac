// How long a collective takes, by a model: a message of n bytes takes latency + n * seconds per
// byte, and a rank sends one at a time, and receives one at a time. The bytes that go over the
// network also share the port of their node, in each direction. Sums and copies take time by byte.
//
// Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication
// Operations in MPICH", IJHPCA 19(1), 2005, on the cost model (alpha, beta, gamma).
#pragma once

#include <vector>

#include "collective/schedule.h"
#include "collective/task.h"

namespace tnt {

struct LinkCost {
  double latency_s = 0;
  double seconds_per_byte = 0;
};

// By default of nodes with a port of 100 Gbit/s, which one rank alone can fill.
struct Costs {
  LinkCost node{0.3e-6, 1.0 / 5e9};  // between ranks that share memory
  LinkCost network{2e-6, 1.0 / 12e9};
  double port_s_per_byte = 1.0 / 12e9;
  double reduce_s_per_byte = 1.0 / 10e9;  // of the result
  double copy_s_per_byte = 1.0 / 10e9;
};

// When each rank has finished, in seconds since all began. Throws std::invalid_argument if the
// schedules do not end.
std::vector<double> predict(const std::vector<Schedule>& schedules, const Task& task,
                            const Costs& costs);

}  // namespace tnt

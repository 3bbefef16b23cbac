// The parts of the Python module that have files of their own.
#pragma once

#include <nanobind/nanobind.h>

namespace tnt {

// Collectives on memory of Python, which wait with Ctrl-C working.
void bind_operations(nanobind::module_& m);

// Schedules, algorithms and the checker.
void bind_schedules(nanobind::module_& m);

}  // namespace tnt

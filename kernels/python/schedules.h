// Schedules, algorithms, the checker and the cost model, as Python sees them.
#pragma once

#include <nanobind/nanobind.h>

namespace tnt {

void bind_schedules(nanobind::module_& m);

}  // namespace tnt

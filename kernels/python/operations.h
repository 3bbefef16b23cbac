// Collectives on memory of Python, which wait with Ctrl-C working.
#pragma once

#include <nanobind/nanobind.h>

namespace tnt {

void bind_operations(nanobind::module_& m);

}  // namespace tnt

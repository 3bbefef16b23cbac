#include "transport/gaspi_library.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "transport/transport.h"

namespace tnt::gaspi {

Library::Library(const std::string& name) {
  handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    throw TransportError(std::string("GPI-2 was not found: ") + dlerror() +
                         "; set TNT_GASPI_LIBRARY to its path, or take another transport");
#define TNT_GASPI_FIND(NAME, ARGUMENTS)                                        \
  NAME = reinterpret_cast<Return(*) ARGUMENTS>(dlsym(handle, "gaspi_" #NAME)); \
  if (NAME == nullptr)                                                         \
    throw TransportError(name + " is not a GPI-2 that can be used: it has no gaspi_" #NAME);
  TNT_GASPI_FUNCTIONS(TNT_GASPI_FIND)
#undef TNT_GASPI_FIND
}

std::string Library::describe(Return code) const {
  char* text = nullptr;
  if (print_error(code, &text) != success || text == nullptr) return std::to_string(code);
  const std::string description = std::string(text) + " (" + std::to_string(code) + ")";
  std::free(text);
  return description;
}

Settings::Settings(const Library& library) {
  void* const memory = dlsym(library.handle, "glb_gaspi_cfg");
  if (memory == nullptr) return;
  Dl_info info;
  const ElfW(Sym)* symbol = nullptr;
  if (dladdr1(memory, &info, reinterpret_cast<void**>(const_cast<ElfW(Sym)**>(&symbol)),
              RTLD_DL_SYMENT) == 0 ||
      symbol == nullptr)
    return;
  // The same as what the official function gives out: or it is something else.
  constexpr std::size_t limit = 4096;
  const std::size_t bytes = symbol->st_size;
  std::vector<std::uint64_t> copy(2 * limit / sizeof(std::uint64_t));
  if (bytes == 0 || bytes > limit || library.config_get(copy.data()) != success ||
      std::memcmp(copy.data(), memory, bytes) != 0)
    return;
  words_ = static_cast<std::uint32_t*>(memory);
  count_ = bytes / sizeof(std::uint32_t);
}

Ports Settings::ports() const {
  Ports ports;
  if (words_ != nullptr && find(static_cast<std::uint32_t>(ports.device)) == nullptr)
    ports.device = 0;
  return ports;
}

void Settings::set_ports(const Ports& ports) {
  const Ports defaults;
  std::uint32_t* const start = find(static_cast<std::uint32_t>(defaults.start));
  std::uint32_t* const device = find(static_cast<std::uint32_t>(defaults.device));
  if (start == nullptr || (ports.device != 0 && device == nullptr))
    throw TransportError(
        "the ports of this GPI-2 cannot be changed: its configuration is not known. Leave "
        "port_base 0, and run one job at a time on a host");
  *start = static_cast<std::uint32_t>(ports.start);
  if (ports.device != 0) *device = static_cast<std::uint32_t>(ports.device);
}

std::uint32_t* Settings::find(std::uint32_t value) const {
  std::uint32_t* const end = words_ + count_;
  std::uint32_t* const found = std::find(words_, end, value);
  return found == end || std::find(found + 1, end, value) != end ? nullptr : found;
}

}  // namespace tnt::gaspi

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
  const auto find = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(handle, symbol));
    if (function == nullptr)
      throw TransportError(name + " is not a GPI-2 that can be used: it has no " + symbol);
  };
  find(proc_init, "gaspi_proc_init");
  find(proc_rank, "gaspi_proc_rank");
  find(proc_num, "gaspi_proc_num");
  find(proc_ping, "gaspi_proc_ping");
  find(config_get, "gaspi_config_get");
  find(state_vec_get, "gaspi_state_vec_get");
  find(print_error, "gaspi_print_error");
  find(segment_alloc, "gaspi_segment_alloc");
  find(segment_register, "gaspi_segment_register");
  find(segment_size, "gaspi_segment_size");
  find(segment_ptr, "gaspi_segment_ptr");
  find(write_notify, "gaspi_write_notify");
  find(notify_waitsome, "gaspi_notify_waitsome");
  find(notify_reset, "gaspi_notify_reset");
  find(notification_num, "gaspi_notification_num");
  find(wait, "gaspi_wait");
  find(queue_num, "gaspi_queue_num");
  find(queue_size, "gaspi_queue_size");
  find(queue_size_max, "gaspi_queue_size_max");
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

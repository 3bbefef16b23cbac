#include "engine/registry.h"

namespace tnt {
namespace {

std::mutex mutex;

// Never destroyed: TensorFlow's threads may outlive the statics of this library.
std::map<int, std::shared_ptr<Engine>>& engines() {
  static auto* instance = new std::map<int, std::shared_ptr<Engine>>;
  return *instance;
}

}  // namespace

void register_engine(int world, std::shared_ptr<Engine> engine) {
  std::lock_guard lock(mutex);
  if (engine == nullptr)
    engines().erase(world);
  else
    engines()[world] = std::move(engine);
}

std::shared_ptr<Engine> find_engine(int world) {
  std::lock_guard lock(mutex);
  const auto found = engines().find(world);
  return found == engines().end() ? nullptr : found->second;
}

}  // namespace tnt

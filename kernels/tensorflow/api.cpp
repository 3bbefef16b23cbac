#include "tensorflow/api.h"

#include <dlfcn.h>

#include <initializer_list>

namespace tnt::tf {

#define TNT_TF_DEFINE(RESULT, NAME, ARGUMENTS) RESULT(*NAME) ARGUMENTS = nullptr;
TNT_TF_FUNCTIONS(TNT_TF_DEFINE)
#undef TNT_TF_DEFINE

const char* resolve() {
  void* library = nullptr;
  for (const char* name : {"libtensorflow_framework.so.2", "libtensorflow_cc.so.2"})
    if (library == nullptr) library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return "libtensorflow_framework.so.2";
#define TNT_TF_FIND(RESULT, NAME, ARGUMENTS)                           \
  NAME = reinterpret_cast<RESULT(*) ARGUMENTS>(dlsym(library, #NAME)); \
  if (NAME == nullptr) return #NAME;
  TNT_TF_FUNCTIONS(TNT_TF_FIND)
#undef TNT_TF_FIND
  return nullptr;
}

}  // namespace tnt::tf

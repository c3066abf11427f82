// Tests only: a library that answers like CUDA's driver on a machine where it cannot be used. XPUD_FAKE_CUDA
// says which: "old", "init" or "none".
#include <cstdlib>
#include <cstring>

namespace {

bool Is(const char* kind) {
  const char* const wanted = std::getenv("XPUD_FAKE_CUDA");
  return wanted != nullptr && std::strcmp(wanted, kind) == 0;
}

}  // namespace

#define XPUD_EXPORTED extern "C" __attribute__((visibility("default")))

XPUD_EXPORTED int cuInit(unsigned) { return Is("init") ? 803 : 0; }
XPUD_EXPORTED int cuDriverGetVersion(int* version) {
  *version = Is("old") ? 11000 : 13000;
  return 0;
}
XPUD_EXPORTED int cuDeviceGetCount(int* count) {
  *count = Is("none") ? 0 : 1;
  return 0;
}
XPUD_EXPORTED int cuGetErrorName(int, const char** name) {
  *name = "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH";
  return 0;
}

// Preloaded into a process, aborts it if it changes its environment while it has more than one thread:
// another thread that reads the environment at that moment, as libraries do, may read freed memory.
#include <dirent.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>

namespace {

int CountThreads() {
  DIR* const tasks = opendir("/proc/self/task");
  if (tasks == nullptr) return 0;
  int count = 0;
  while (const dirent* const entry = readdir(tasks)) count += entry->d_name[0] != '.' ? 1 : 0;
  closedir(tasks);
  return count;
}

void Check(const char* name) {
  const int threads = CountThreads();
  if (threads == 1) return;
  dprintf(STDERR_FILENO, "environment variable %s changed while there are %d threads\n", name, threads);
  abort();
}

template <typename Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int setenv(const char* name, const char* value, int overwrite) {
  static const auto next = Next<decltype(setenv)>("setenv");
  Check(name);
  return next(name, value, overwrite);
}

EXPORT int unsetenv(const char* name) {
  static const auto next = Next<decltype(unsetenv)>("unsetenv");
  Check(name);
  return next(name);
}

EXPORT int putenv(char* text) {
  static const auto next = Next<decltype(putenv)>("putenv");
  Check(text);
  return next(text);
}

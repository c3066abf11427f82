// Reads a string that was moved from: clang-tidy must report it (tools/checks/tidy.py).
#include <cstdio>
#include <string>
#include <utility>

int main(int argc, char** argv) {
  std::string name(argv[argc - 1]);
  const std::string taken = std::move(name);
  std::printf("%s %s\n", taken.c_str(), name.c_str());
  return 0;
}

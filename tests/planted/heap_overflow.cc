// Reads one element past an allocation: AddressSanitizer must report it.
#include <cstdio>
#include <vector>

int main(int argc, char**) {
  std::vector<int> values(static_cast<size_t>(argc) + 7);
  const int* begin = values.data();
  std::printf("%d\n", begin[values.size()]);
  return 0;
}

// Overflows a signed integer: UndefinedBehaviorSanitizer must report it.
#include <climits>
#include <cstdio>

int main(int argc, char**) {
  const int largest = INT_MAX;
  std::printf("%d\n", largest + argc);
  return 0;
}

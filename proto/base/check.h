// CHECK ends the process, with place and reason, if the condition is false. For our own bugs only, never for
// what a peer sent.
#pragma once

#include <cstdio>
#include <cstdlib>

#define XPUD_CHECK(condition)                                                            \
  do {                                                                                   \
    if (!(condition)) [[unlikely]] {                                                     \
      std::fprintf(stderr, "%s:%d: CHECK failed: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                      \
    }                                                                                    \
  } while (0)

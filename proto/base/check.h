// CHECK: a bug of ours ends the process, with the place and the reason. Never for what a peer sent.
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

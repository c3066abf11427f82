// Loses its memory if there is no more: clang-tidy must report it (tools/checks/tidy.py).
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  char* copy = NULL;
  copy = realloc(copy, (size_t)argc + 1);
  copy = realloc(copy, (size_t)argc + 2);
  if (copy != NULL) printf("%s\n", argv[0]);
  free(copy);
  return 0;
}

//===- law_values.cpp - compares values.bin of law.cu with the host -------===//
#include "law_values.h"
#include <cstdio>
#include <cstring>
#include <vector>

int main() {
  std::vector<Values> theirs(kLawValues);
  FILE *in = std::fopen("values.bin", "rb");
  if (!in || std::fread(theirs.data(), sizeof(Values), theirs.size(), in) != theirs.size()) {
    std::printf("there is no values.bin; run law first\n");
    return 1;
  }
  std::fclose(in);
  int wrong = 0;
  for (int i = 0; i < kLawValues; ++i) {
    const Values ours = valuesOf(i);
    if (std::memcmp(&ours, &theirs[i], sizeof(Values)) != 0 && ++wrong == 1)
      std::printf("number %d has other bits\n", i);
  }
  std::printf("%d of %d differ\n", wrong, kLawValues);
  return wrong != 0;
}

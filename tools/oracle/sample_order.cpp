// Writes the windows that a job reads, in order, as little-endian int64: what tools/oracle/train_llama.py
// takes as --order.
//
//   g++ -std=c++20 -O2 -Isrc tools/oracle/sample_order.cpp src/data/sample_order.cpp src/base/error.cpp src/base/text.cpp -o sample_order
//   ./sample_order SEED WINDOWS COUNT > order.bin
#include <cstdio>
#include <cstdlib>

#include "data/sample_order.h"

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: sample_order SEED WINDOWS COUNT\n");
    return 2;
  }
  tessera::SampleOrder order(std::strtoull(argv[1], nullptr, 10), std::atoll(argv[2]), true);
  for (int64_t k = 0; k < std::atoll(argv[3]); ++k) {
    int64_t window = order.at(k).window;
    std::fwrite(&window, sizeof window, 1, stdout);
  }
  return 0;
}
